package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ATA commands (ACS-4) and how they travel in SCSI's ATA PASS-THROUGH (16) (SAT-4, 12.2).
const (
	ataIdentify         = 0xec
	ataSanitize         = 0xb4
	ataSetPassword      = 0xf1
	ataUnlock           = 0xf2
	ataErasePrepare     = 0xf3
	ataEraseUnit        = 0xf4
	ataDisablePassword  = 0xf6
	cdbATA16            = 0x85
	protoNonData        = 3
	protoPIOIn          = 4
	protoPIOOut         = 5
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

// ataCommand is one ATA command.
type ataCommand struct {
	protocol byte
	ext      bool // 48-bit
	features uint16
	lba      uint64
	command  byte
	data     []byte
	timeout  time.Duration
}

// registers are what a command left in the count and LBA registers.
type registers struct {
	count uint16
	lba   uint64
}

type ata struct {
	port  scsiPort
	sleep clock
}

// do sends a command and reads the registers that it leaves.
func (a ata) do(c ataCommand) (registers, error) {
	const checkCond, fromDevice, byBlocks, inCount = 1 << 5, 1 << 3, 1 << 2, 2
	flags, dir, blocks := byte(checkCond), noData, byte(0)
	if len(c.data) > 0 {
		flags, dir, blocks = byBlocks|inCount, toDisk, byte(len(c.data)/512)
		if c.protocol == protoPIOIn {
			flags |= fromDevice
			dir = fromDisk
		}
	}
	ext := byte(0)
	if c.ext {
		ext = 1
	}
	cdb := []byte{
		cdbATA16, c.protocol<<1 | ext, flags, byte(c.features >> 8), byte(c.features), 0, blocks,
		byte(c.lba >> 24), byte(c.lba), byte(c.lba >> 32), byte(c.lba >> 8), byte(c.lba >> 40), byte(c.lba >> 16), 0x40, c.command, 0,
	}
	sense, err := a.port.do(cdb, dir, c.data, c.timeout)
	status, r, ok := returned(sense)
	switch {
	case ok && status&0x21 != 0: // ERR or DF
		return r, fmt.Errorf("ATA command %02xh: status %02xh", c.command, status)
	case ok:
		return r, nil // the check condition only carried the registers
	}
	return r, err
}

// returned reads the ATA Status Return descriptor of sense data (SAT-4, 12.2.6).
func returned(b []byte) (status byte, r registers, ok bool) {
	if len(b) < 8 || b[0]&0x7f != 0x72 {
		return 0, r, false
	}
	for at := 8; at+14 <= len(b); at += 2 + int(b[at+1]) {
		if b[at] != 0x09 || b[at+1] != 12 {
			continue
		}
		d := b[at:]
		r.count = uint16(d[4])<<8 | uint16(d[5])
		r.lba = uint64(d[7]) | uint64(d[9])<<8 | uint64(d[11])<<16 | uint64(d[6])<<24 | uint64(d[8])<<32 | uint64(d[10])<<40
		return d[13], r, true
	}
	return 0, r, false
}

func ataLadder(p scsiPort, sleep clock) Ladder {
	var l Ladder
	a := ata{p, sleep}
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
	if _, err := a.do(ataCommand{protocol: protoPIOIn, command: ataIdentify, data: b, timeout: 10 * time.Second}); err != nil {
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
	_, err := a.do(ataCommand{protocol: protoPIOOut, command: ataUnlock, data: password(0), timeout: 10 * time.Second})
	return err
}

// secureErase is SECURITY ERASE UNIT. estimate is the disk's own, in units of two minutes (ACS-4, 7.12.7.47).
func (a ata) secureErase(enhanced bool, estimate uint16) func(context.Context, Progress) error {
	return func(ctx context.Context, p Progress) error {
		short := func(cmd byte, data []byte) error {
			proto := byte(protoPIOOut)
			if data == nil {
				proto = protoNonData
			}
			_, err := a.do(ataCommand{protocol: proto, command: cmd, data: data, timeout: 10 * time.Second})
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
		_, err := a.do(ataCommand{protocol: protoPIOOut, command: ataEraseUnit, data: unit, timeout: 2*expected + time.Hour})
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
		if _, err := a.do(ataCommand{protocol: protoNonData, ext: true, features: feature, lba: lba, command: ataSanitize, timeout: time.Minute}); err != nil {
			return err
		}
		for {
			r, err := a.do(ataCommand{protocol: protoNonData, ext: true, features: sanStatus, command: ataSanitize, timeout: 10 * time.Second})
			const completed, running = 1 << 15, 1 << 14
			switch {
			case err != nil:
				return fmt.Errorf("%w: %w", ErrUnsure, err)
			case r.count&running != 0:
				p(float64(r.lba&0xffff)/65536, "as the disk's sanitize status says")
			case r.count&completed != 0:
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
