package passthrough

import (
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
	LBA      uint64
	Command  byte
	Data     []byte // whole sectors
	Timeout  time.Duration
}

// Registers are what a command left in the count and LBA registers.
type Registers struct {
	Count uint16
	LBA   uint64
}

// ATA sends ATA commands through a disk's SCSI port.
type ATA struct{ Port SCSI }

// Do sends a command and reads the registers that it leaves.
func (a ATA) Do(c ATACommand) (Registers, error) {
	const checkCond, fromDevice, byBlocks, inCount = 1 << 5, 1 << 3, 1 << 2, 2
	flags, dir, blocks := byte(checkCond), NoData, byte(0)
	if len(c.Data) > 0 {
		flags, dir, blocks = byBlocks|inCount, ToDisk, byte(len(c.Data)/512)
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
		cdbATA16, c.Protocol<<1 | ext, flags, byte(c.Features >> 8), byte(c.Features), 0, blocks,
		byte(c.LBA >> 24), byte(c.LBA), byte(c.LBA >> 32), byte(c.LBA >> 8), byte(c.LBA >> 40), byte(c.LBA >> 16), 0x40, c.Command, 0,
	}
	sense, err := a.Port.Do(cdb, dir, c.Data, c.Timeout)
	status, r, ok := Returned(sense)
	switch {
	case ok && status&0x21 != 0: // ERR or DF
		return r, fmt.Errorf("ATA command %02xh: status %02xh", c.Command, status)
	case ok:
		return r, nil // the check condition only carried the registers
	}
	return r, err
}

// Returned reads the ATA Status Return descriptor of sense data (SAT-4, 12.2.6).
func Returned(b []byte) (status byte, r Registers, ok bool) {
	if len(b) < 8 || b[0]&0x7f != 0x72 {
		return 0, r, false
	}
	for at := 8; at+14 <= len(b); at += 2 + int(b[at+1]) {
		if b[at] != 0x09 || b[at+1] != 12 {
			continue
		}
		d := b[at:]
		r.Count = uint16(d[4])<<8 | uint16(d[5])
		r.LBA = uint64(d[7]) | uint64(d[9])<<8 | uint64(d[11])<<16 | uint64(d[6])<<24 | uint64(d[8])<<32 | uint64(d[10])<<40
		return d[13], r, true
	}
	return 0, r, false
}
