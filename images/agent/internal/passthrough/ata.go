package passthrough

import (
	"errors"
	"fmt"
	"time"
)

// Protocols of ATA commands, and how they travel in SCSI's ATA PASS-THROUGH (16) (SAT-4, 12.2).
const (
	NonData = 3
	PIOIn   = 4
	PIOOut  = 5

	cdbATA16 = 0x85
)

// ATACommand is one ATA command.
type ATACommand struct {
	Protocol byte // NonData, PIOIn or PIOOut
	Ext      bool // 48-bit
	Features uint16
	Count    uint16 // of a command without data; one with data counts its sectors
	LBA      uint64
	Command  byte
	Data     []byte // whole sectors
	Timeout  time.Duration
}

// Registers are what a command left in the disk's registers, as far as they came back.
type Registers struct {
	Count uint16
	LBA   uint64
	Told  bool // false: nothing came back, as through many bridges and RAID controllers; the rest is zero and means nothing
	Whole bool // false: only bits 7:0 of Count and 23:0 of LBA came back (fixed format sense data)
}

// ATAError is an ATA command that the disk itself ended with an error.
type ATAError struct {
	Command, Status, Reason byte // Reason is the error register
	Registers               Registers
}

func (e ATAError) Error() string {
	text := "the disk failed the command"
	if e.Reason&abort != 0 {
		text = "the disk aborted the command"
	}
	return fmt.Sprintf("%s (ATA command %02xh: status %02xh, error %02xh)", text, e.Command, e.Status, e.Reason)
}

// Bits of the ATA status and error registers.
const (
	statusError, statusFault, statusReady, statusBusy = 1 << 0, 1 << 5, 1 << 6, 1 << 7
	abort                                             = 1 << 2
)

// ATA sends ATA commands through a disk's SCSI port.
type ATA struct{ Port SCSI }

// Do sends a command and reads the registers that it leaves. Data commands are not asked for registers, so those have none.
//
// The command succeeded when neither the transport nor the disk says otherwise. That registers came back is no success by
// itself: a command that ran out of time comes back with the last ones seen.
func (a ATA) Do(c ATACommand) (Registers, error) {
	const checkCond, fromDevice, byBlocks, inCount = 1 << 5, 1 << 3, 1 << 2, 2
	flags, dir, count := byte(checkCond), NoData, c.Count
	if len(c.Data) > 0 {
		flags, dir, count = byBlocks|inCount, ToDisk, uint16(len(c.Data)/512)
		if c.Protocol == PIOIn {
			flags |= fromDevice
			dir = FromDisk
		}
	}
	ext := byte(0)
	if c.Ext {
		ext = 1
	}
	cdb := []byte{
		cdbATA16, c.Protocol<<1 | ext, flags, byte(c.Features >> 8), byte(c.Features), byte(count >> 8), byte(count),
		byte(c.LBA >> 24), byte(c.LBA), byte(c.LBA >> 32), byte(c.LBA >> 8), byte(c.LBA >> 40), byte(c.LBA >> 16), 0x40, c.Command, 0,
	}
	sense, err := a.Port.Do(cdb, dir, c.Data, c.Timeout)
	status, reason, r := Returned(sense)
	var check CheckCondition
	switch {
	case r.Told && status&(statusError|statusFault) != 0:
		return r, ATAError{c.Command, status, reason, r}
	case errors.As(err, &check) && check.benign():
		return r, nil // the check condition only carried the registers
	}
	return r, err
}

// Returned reads the registers of a command in its sense data: the ATA Status Return descriptor (SAT-4, 12.2.6), or the fields
// of the fixed format (SAT-4, 12.2.7). Registers with a status that no disk ends a command with are none: some controllers
// send zeros.
func Returned(b []byte) (status, reason byte, r Registers) {
	if len(b) < 8 {
		return 0, 0, Registers{}
	}
	switch b[0] & 0x7f {
	case 0x72:
		status, reason, r = returnedDescriptor(b)
	case 0x70:
		status, reason, r = returnedFixed(b)
	}
	if status&(statusReady|statusBusy) != statusReady {
		return 0, 0, Registers{}
	}
	return status, reason, r
}

func returnedDescriptor(b []byte) (status, reason byte, r Registers) {
	for at := 8; at+14 <= len(b); at += 2 + int(b[at+1]) {
		if b[at] != 0x09 || b[at+1] != 12 {
			continue
		}
		d := b[at:]
		r = Registers{Told: true, Whole: true, Count: uint16(d[4])<<8 | uint16(d[5])}
		r.LBA = uint64(d[7]) | uint64(d[9])<<8 | uint64(d[11])<<16 | uint64(d[6])<<24 | uint64(d[8])<<32 | uint64(d[10])<<40
		return d[13], d[3], r
	}
	return 0, 0, r
}

// returnedFixed believes the fields only where they say that they are registers: with the code ATA PASS-THROUGH INFORMATION
// AVAILABLE, or, in valid information, a status with an error. Elsewhere the same bytes are a block's address.
//
// Linux before 2024 put them four bytes further on, without that code, for commands that failed; the sense key is enough then.
func returnedFixed(b []byte) (status, reason byte, r Registers) {
	c, ok := SenseOf(b)
	carries := c.ASC == 0x00 && c.ASCQ == 0x1d
	failed := b[0]&0x80 != 0 && !c.benign() && b[4]&(statusError|statusFault) != 0
	if !ok || !carries && !failed {
		return 0, 0, r
	}
	return b[4], b[3], Registers{Told: true, Count: uint16(b[6]), LBA: uint64(b[9]) | uint64(b[10])<<8 | uint64(b[11])<<16}
}
