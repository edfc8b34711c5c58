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
	sanOverwriteExt   = 0x0014
	lbaCrypto         = 0x43727970   // "CryP"
	lbaBlock          = 0x426b4572   // "BkEr"
	lbaOverwrite      = 0x4f57 << 32 // "OW", and in bits 31:0 the pattern

	identifySanitize     = 59 // word of IDENTIFY DEVICE
	sanitizeSupported    = 1 << 12
	sanitizeHasScramble  = 1 << 13
	sanitizeHasOverwrite = 1 << 14
	sanitizeHasBlock     = 1 << 15
	identifyRotation     = 217
	notRotating          = 1

	countDone, countRunning, countFrozen = 1 << 15, 1 << 14, 1 << 13 // the count that SANITIZE STATUS leaves

	reasonFailed = 1 // the lowest byte of the LBA that an aborted SANITIZE STATUS leaves
)

// errUntold is a controller that does not pass on what SANITIZE STATUS leaves in the disk's registers.
var errUntold = errors.New("the controller does not pass on what the disk says of its sanitize")

// sanitizer are the sanitize operations of a disk that can be followed to their end.
type sanitizer struct{ crypto, block, overwrite bool }

// sanitizer reads which operations there are, and says why none is used.
func (a ata) sanitizer(l *Ladder, id *passthrough.Identity) (s sanitizer) {
	san := id[identifySanitize]
	if san&sanitizeSupported == 0 || san&(sanitizeHasScramble|sanitizeHasBlock|sanitizeHasOverwrite) == 0 {
		return s
	}
	r, err := a.sanitizeStatus()
	var failed passthrough.ATAError
	switch {
	case errors.As(err, &failed): // of an earlier one, perhaps; a new one may go well
	case err != nil:
		l.note("sanitize is not used, because its end would not be seen: %v", err)
		return s
	case r.Count&countFrozen != 0:
		l.note("the firmware froze the disk's sanitize: plug the disk in while the machine runs, or turn the freeze off in the firmware's setup")
		return s
	}
	return sanitizer{crypto: san&sanitizeHasScramble != 0, block: san&sanitizeHasBlock != 0, overwrite: san&sanitizeHasOverwrite != 0}
}

func (a ata) sanitizeStatus() (passthrough.Registers, error) {
	r, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Features: sanStatus, Command: ataSanitize, Timeout: 10 * time.Second})
	if err == nil && !r.Whole { // what counts is in the upper byte of the count
		err = errUntold
	}
	return r, err
}

// sanitize starts SANITIZE DEVICE and follows it by its status.
func (a ata) sanitize(feature, count uint16, lba uint64) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		if _, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Features: feature, Count: count, LBA: lba, Command: ataSanitize, Timeout: time.Minute}); err != nil {
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
