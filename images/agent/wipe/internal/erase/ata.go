package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// ATA commands and what IDENTIFY DEVICE holds (ACS-4).
const (
	ataIdentify         = 0xec
	ataSanitize         = 0xb4
	ataSetPassword      = 0xf1
	ataUnlock           = 0xf2
	ataErasePrepare     = 0xf3
	ataEraseUnit        = 0xf4
	ataDisablePassword  = 0xf6
	sanStatus           = 0x0000 // features of SANITIZE DEVICE
	sanCryptoScramble   = 0x0011
	sanBlockErase       = 0x0012
	lbaCrypto           = 0x43727970 // "CryP"
	lbaBlock            = 0x426b4572 // "BkEr"
	identifySecurity    = 128        // words of IDENTIFY DEVICE
	identifySanitize    = 59
	identifyEraseTime   = 89
	identifyEnhanced    = 90
	securitySupported   = 1 << 0
	securityEnabled     = 1 << 1
	securityLocked      = 1 << 2
	securityFrozen      = 1 << 3
	securityEnhanced    = 1 << 5
	sanitizeSupported   = 1 << 12
	sanitizeHasScramble = 1 << 13
	sanitizeHasBlock    = 1 << 15
)

// ataPassword is the user password that is set for the time of a Security Erase, which clears it. It is no secret: a disk
// that lost power in the middle is unlocked with it, by the next wipe or by hand (hdparm --security-disable).
const ataPassword = "bcd-wipe"

type ata struct {
	passthrough.ATA
	sleep clock
}

func ataLadder(p passthrough.SCSI, sleep clock) Ladder {
	var l Ladder
	a := ata{passthrough.ATA{Port: p}, sleep}
	id, err := a.identify()
	if err != nil {
		l.note("the disk does not answer IDENTIFY DEVICE: %v", err)
		return l
	}
	if san := id[identifySanitize]; san&sanitizeSupported != 0 {
		if san&sanitizeHasScramble != 0 {
			l.add("ata-sanitize-crypto", a.sanitize(sanCryptoScramble, lbaCrypto))
		}
		if san&sanitizeHasBlock != 0 {
			l.add("ata-sanitize-block", a.sanitize(sanBlockErase, lbaBlock))
		}
	}
	sec := id[identifySecurity]
	switch {
	case sec&securitySupported == 0:
		l.note("the disk has no ATA security feature set")
	case sec&securityFrozen != 0:
		l.note("the firmware froze the disk's security, so Security Erase is refused: plug the disk in while the machine runs, or turn the freeze off in the firmware's setup")
	case sec&(securityEnabled|securityLocked) == securityEnabled|securityLocked && a.unlock() != nil:
		l.note("the disk is locked by a password that is not ours, so Security Erase is refused")
	default:
		if sec&securityEnhanced != 0 {
			l.add("ata-security-erase-enhanced", a.secureErase(true, id[identifyEnhanced]))
		}
		l.add("ata-security-erase", a.secureErase(false, id[identifyEraseTime]))
	}
	return l
}

// identify reads the 256 words of IDENTIFY DEVICE.
func (a ata) identify() ([256]uint16, error) {
	var words [256]uint16
	b := make([]byte, 512)
	if _, err := a.Do(passthrough.ATACommand{Protocol: passthrough.PIOIn, Command: ataIdentify, Data: b, Timeout: 10 * time.Second}); err != nil {
		return words, err
	}
	for i := range words {
		words[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return words, nil
}

// password is the data of the security commands: identifier and password.
func password(identifier uint16) []byte {
	b := make([]byte, 512)
	binary.LittleEndian.PutUint16(b, identifier)
	copy(b[2:34], ataPassword)
	return b
}

func (a ata) unlock() error {
	_, err := a.Do(passthrough.ATACommand{Protocol: passthrough.PIOOut, Command: ataUnlock, Data: password(0), Timeout: 10 * time.Second})
	return err
}

// secureErase is SECURITY ERASE UNIT. estimate is the disk's own, in units of two minutes (ACS-4, 7.12.7.47).
func (a ata) secureErase(enhanced bool, estimate uint16) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		short := func(cmd byte, data []byte) error {
			proto := byte(passthrough.PIOOut)
			if data == nil {
				proto = passthrough.NonData
			}
			_, err := a.Do(passthrough.ATACommand{Protocol: proto, Command: cmd, Data: data, Timeout: 10 * time.Second})
			return err
		}
		if err := short(ataSetPassword, password(0)); err != nil {
			return fmt.Errorf("setting the erase password: %w", err)
		}
		if err := short(ataErasePrepare, nil); err != nil {
			return errors.Join(fmt.Errorf("preparing the erase: %w", err), short(ataDisablePassword, password(0)))
		}
		expected := eraseTime(estimate)
		stop := a.sleep.meanwhile(ctx, func(sofar time.Duration) {
			p(min(0.99, sofar.Seconds()/expected.Seconds()), "guessed from the "+expected.String()+" that the disk estimates")
		})
		unit := password(0)
		if enhanced {
			unit[0] |= 2
		}
		_, err := a.Do(passthrough.ATACommand{Protocol: passthrough.PIOOut, Command: ataEraseUnit, Data: unit, Timeout: 2*expected + time.Hour})
		stop()
		if err != nil {
			return errors.Join(fmt.Errorf("erasing: %w", err), short(ataDisablePassword, password(0)))
		}
		id, err := a.identify()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsure, err)
		}
		if id[identifySecurity]&securityEnabled != 0 {
			return errors.Join(errors.New("the disk still has the erase password, so the erase did not end"), short(ataDisablePassword, password(0)))
		}
		p(1, "")
		return nil
	}
}

// eraseTime is how long a disk says that an erase takes: bit 15 set means 15 bits of value, else 8 (255: more than 508 min).
func eraseTime(word uint16) time.Duration {
	units := word & 0xff
	if word&0x8000 != 0 {
		units = word & 0x7fff
	}
	if units == 0 {
		return 4 * time.Hour // not said
	}
	return time.Duration(units) * 2 * time.Minute
}

// sanitize starts SANITIZE DEVICE and follows it by its status.
func (a ata) sanitize(feature uint16, lba uint64) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		if _, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Features: feature, LBA: lba, Command: ataSanitize, Timeout: time.Minute}); err != nil {
			return err
		}
		for {
			r, err := a.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Features: sanStatus, Command: ataSanitize, Timeout: 10 * time.Second})
			const completed, running = 1 << 15, 1 << 14
			switch {
			case err != nil:
				return fmt.Errorf("%w: %w", ErrUnsure, err)
			case r.Count&running != 0:
				p(float64(r.LBA&0xffff)/65536, "as the disk's sanitize status says")
			case r.Count&completed != 0:
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
