package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// ATA security commands and what IDENTIFY DEVICE holds of them (ACS-4).
const (
	ataSetPassword     = 0xf1
	ataUnlock          = 0xf2
	ataErasePrepare    = 0xf3
	ataEraseUnit       = 0xf4
	ataDisablePassword = 0xf6

	setSecurity       = 1   // bit of word 82
	identifySecurity  = 128 // words of IDENTIFY DEVICE
	identifyEraseTime = 89
	identifyEnhanced  = 90

	securitySupported = 1 << 0
	securityEnabled   = 1 << 1
	securityLocked    = 1 << 2
	securityFrozen    = 1 << 3
	securityExpired   = 1 << 4
	securityEnhanced  = 1 << 5
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
	id, err := a.Identify(10 * time.Second)
	if err != nil {
		l.note("the disk does not answer IDENTIFY DEVICE: %v", err)
		return l
	}
	e := a.eraser(&l, &id) // which may unlock the disk: a locked one does not sanitize itself
	a.rungs(&l, &id, a.sanitizer(&l, &id), e)
	return l
}

// rungs adds what a disk has, the surest first. An overwriting sanitize takes as long as a Security Erase of a disk with platters,
// but it reaches the sectors that were replaced, which only the enhanced one does, and tells how far it is. A Security Erase of
// flash is over in minutes, and an overwriting only wears it.
func (a ata) rungs(l *Ladder, id *passthrough.Identity, s sanitizer, e eraser) {
	overwrite := func(here bool) {
		if s.overwrite && here {
			l.add("ata-sanitize-overwrite", a.sanitize(sanOverwriteExt, 1, lbaOverwrite))
		}
	}
	flash := id[identifyRotation] == notRotating
	if s.crypto {
		l.add("ata-sanitize-crypto", a.sanitize(sanCryptoScramble, 0, lbaCrypto))
	}
	if s.block {
		l.add("ata-sanitize-block", a.sanitize(sanBlockErase, 0, lbaBlock))
	}
	if e.enhanced {
		l.add("ata-security-erase-enhanced", a.secureErase(true, eraseTime(id[identifyEnhanced], id.Bytes())))
	}
	overwrite(!flash)
	if e.normal {
		l.add("ata-security-erase", a.secureErase(false, eraseTime(id[identifyEraseTime], id.Bytes())))
	}
	overwrite(flash)
}

// eraser are the forms of Security Erase that a disk takes now.
type eraser struct{ normal, enhanced bool }

// eraser reads which there are, and says why none can be used.
func (a ata) eraser(l *Ladder, id *passthrough.Identity) (e eraser) {
	sec := id[identifySecurity]
	has, told := id.Supports(setSecurity)
	switch {
	case sec&securitySupported == 0 || told && !has:
		l.note("the disk has no ATA security feature set")
	case sec&securityFrozen != 0:
		l.note("the firmware froze the disk's security, so Security Erase is refused: plug the disk in while the machine runs, or turn the freeze off in the firmware's setup")
	case sec&(securityEnabled|securityLocked) == securityEnabled|securityLocked && sec&securityExpired != 0:
		l.note("the disk is locked and takes no more passwords until it was without power: take power from the machine for a minute, then wipe again")
	case sec&(securityEnabled|securityLocked) == securityEnabled|securityLocked && a.unlock() != nil:
		l.note("the disk is locked by a password that is not ours, so Security Erase is refused: take the password off with the tool that set it (hdparm --security-disable)")
	default:
		return eraser{normal: true, enhanced: sec&securityEnhanced != 0}
	}
	return e
}

// password is the data of the security commands: identifier and password.
func password(identifier uint16) []byte {
	b := make([]byte, 512)
	binary.LittleEndian.PutUint16(b, identifier)
	copy(b[2:34], ataPassword)
	return b
}

func (a ata) unlock() error { return a.short(ataUnlock, password(0)) }

// disable takes our password off after an erase that failed because of err.
func (a ata) disable(err error) error {
	if left := a.short(ataDisablePassword, password(0)); left != nil {
		return fmt.Errorf("%w; the disk may be left with the password %q, which could not be taken off: %w", err, ataPassword, left)
	}
	return err
}

// short is a security command that ends at once.
func (a ata) short(cmd byte, data []byte) error {
	proto := byte(passthrough.PIOOut)
	if data == nil {
		proto = passthrough.NonData
	}
	_, err := a.Do(passthrough.ATACommand{Protocol: proto, Command: cmd, Data: data, Timeout: 10 * time.Second})
	return err
}

// secureErase is SECURITY ERASE UNIT, which says nothing until its end, expected after a time.
func (a ata) secureErase(enhanced bool, expected time.Duration) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		if err := a.short(ataSetPassword, password(0)); err != nil {
			return fmt.Errorf("setting the erase password: %w", err)
		}
		if err := a.short(ataErasePrepare, nil); err != nil {
			return a.disable(fmt.Errorf("preparing the erase: %w", err))
		}
		stop := a.sleep.meanwhile(ctx, func(sofar time.Duration) {
			p(min(0.99, sofar.Seconds()/expected.Seconds()), "guessed from the "+expected.String()+" that it should take")
		})
		unit := password(0)
		if enhanced {
			unit[0] |= 2
		}
		_, err := a.Do(passthrough.ATACommand{Protocol: passthrough.PIOOut, Command: ataEraseUnit, Data: unit, Timeout: 2*expected + time.Hour})
		stop()
		if err != nil {
			return a.disable(fmt.Errorf("erasing: %w", err))
		}
		id, err := a.Identify(10 * time.Second)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsure, err)
		}
		if id[identifySecurity]&securityEnabled != 0 {
			return a.disable(errors.New("the disk still has the erase password, so the erase did not end"))
		}
		p(1, "")
		return nil
	}
}

// eraseTime is how long a disk of so many bytes says that an erase takes, in units of two minutes (ACS-4, words 89 and 90):
// with bit 15 in 15 bits, else in the lower eight. A disk that says nothing, or only that it takes longer than its field can
// hold, is expected to write all of it at the pace of a slow one.
func eraseTime(word uint16, bytes int64) time.Duration {
	const pace = 100e6 // bytes a second
	units, most := word&0xff, uint16(0xff)
	if word&0x8000 != 0 {
		units, most = word&0x7fff, 0x7fff
	}
	said := time.Duration(units) * 2 * time.Minute
	if units > 0 && units < most {
		return said
	}
	return max(said, 4*time.Hour, (time.Duration(float64(bytes)/pace) * time.Second).Round(time.Minute))
}
