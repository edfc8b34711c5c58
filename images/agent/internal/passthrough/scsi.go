package passthrough

import (
	"fmt"
	"time"
)

// Direction of a command's data.
type Direction int

// The directions.
const (
	NoData Direction = iota
	FromDisk
	ToDisk
)

// SCSI sends SCSI commands. Sense data of a command that ended with CHECK CONDITION is given with CheckCondition; with
// no error sense may be given too.
type SCSI interface {
	Do(cdb []byte, dir Direction, data []byte, timeout time.Duration) (sense []byte, err error)
}

// CheckCondition is the SCSI status with sense data.
type CheckCondition struct{ Key, ASC, ASCQ byte }

func (c CheckCondition) Error() string {
	return fmt.Sprintf("SCSI sense %x/%02x/%02x", c.Key, c.ASC, c.ASCQ)
}

// SenseOf reads key, additional code and qualifier of fixed and descriptor sense data (SPC-5, 4.5).
func SenseOf(b []byte) (c CheckCondition, ok bool) {
	if len(b) < 8 {
		return c, false
	}
	switch b[0] & 0x7f {
	case 0x70, 0x71:
		if len(b) < 14 {
			return c, false
		}
		return CheckCondition{b[2] & 0xf, b[12], b[13]}, true
	case 0x72, 0x73:
		return CheckCondition{b[1] & 0xf, b[2], b[3]}, true
	}
	return c, false
}
