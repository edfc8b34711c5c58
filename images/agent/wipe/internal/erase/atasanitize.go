package erase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// SANITIZE DEVICE (ACS-4, 7.36) and what IDENTIFY DEVICE holds of it.
const (
	ataSanitize = 0xb4

	sanStatus         = 0x0000 // features
	sanCryptoScramble = 0x0011
	sanBlockErase     = 0x0012
	lbaCrypto         = 0x43727970 // "CryP"
	lbaBlock          = 0x426b4572 // "BkEr"

	identifySanitize    = 59 // word of IDENTIFY DEVICE
	sanitizeSupported   = 1 << 12
	sanitizeHasScramble = 1 << 13
	sanitizeHasBlock    = 1 << 15

	countDone, countRunning, countFrozen = 1 << 15, 1 << 14, 1 << 13 // the count that SANITIZE STATUS leaves

	reasonFailed = 1 // the lowest byte of the LBA that an aborted SANITIZE STATUS leaves
)

// errUntold is a controller that does not pass on what SANITIZE STATUS leaves in the disk's registers.
var errUntold = errors.New("the controller does not pass on what the disk says of its sanitize")

// sanitizeRungs adds the sanitize operations that can be followed to their end, or says why none is used.
func (a ata) sanitizeRungs(l *Ladder, id *passthrough.Identity) {
	san := id[identifySanitize]
	if san&sanitizeSupported == 0 {
		return
	}
	if san&(sanitizeHasScramble|sanitizeHasBlock) == 0 {
		l.note("the disk can sanitize itself only by overwriting, which is left to the other ways")
		return
	}
	r, err := a.sanitizeStatus()
	var failed passthrough.ATAError
	switch {
	case errors.As(err, &failed): // of an earlier one, perhaps; a new one may go well
	case err != nil:
		l.note("sanitize is not used, because its end would not be seen: %v", err)
		return
	case r.Count&countFrozen != 0:
		l.note("the firmware froze the disk's sanitize: plug the disk in while the machine runs, or turn the freeze off in the firmware's setup")
		return
	}
	if san&sanitizeHasScramble != 0 {
		l.add("ata-sanitize-crypto", a.sanitize(sanCryptoScramble, lbaCrypto))
	}
	if san&sanitizeHasBlock != 0 {
		l.add("ata-sanitize-block", a.sanitize(sanBlockErase, lbaBlock))
	}
}

func (a ata) sanitizeStatus() (passthrough.Registers, error) {
	r, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Features: sanStatus, Command: ataSanitize, Timeout: 10 * time.Second})
	if err == nil && !r.Whole { // what counts is in the upper byte of the count
		err = errUntold
	}
	return r, err
}

// sanitize starts SANITIZE DEVICE and follows it by its status.
func (a ata) sanitize(feature uint16, lba uint64) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		if _, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Features: feature, LBA: lba, Command: ataSanitize, Timeout: time.Minute}); err != nil {
			return err
		}
		still := standstill{limit: patience}
		for {
			r, err := a.sanitizeStatus()
			var failed passthrough.ATAError
			switch {
			case errors.As(err, &failed) && failed.Registers.Told && failed.Registers.LBA&0xff == reasonFailed:
				return fmt.Errorf("the disk's sanitize status says that some of it could not be sanitized: %w", err)
			case err != nil:
				return fmt.Errorf("%w: %w", ErrUnsure, err)
			case r.Count&countRunning != 0:
				done := float64(r.LBA&0xffff) / 65536
				p(done, "as the disk's sanitize status says")
				if err := still.at(done); err != nil {
					return err
				}
			case r.Count&countDone != 0:
				p(1, "")
				return nil
			default:
				return errors.New("the disk's sanitize status says that it failed")
			}
			if err := a.sleep(ctx, poll); err != nil {
				return err
			}
		}
	}
}
