package passthrough

import (
	"errors"
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

// benign are the sense keys that are no failure: NO SENSE and RECOVERED ERROR.
func (c CheckCondition) benign() bool { return c.Key <= 1 }

func (c CheckCondition) Error() string {
	code := fmt.Sprintf("SCSI sense %x/%02x/%02x", c.Key, c.ASC, c.ASCQ)
	text, known := senseTexts[[2]byte{c.ASC, c.ASCQ}]
	if !known {
		text, known = keyTexts[c.Key]
	}
	if !known {
		return code
	}
	return text + " (" + code + ")"
}

// senseTexts are the additional sense codes that erasing and asking for health were seen to end with, for people.
var senseTexts = map[[2]byte]string{
	{0x04, 0x00}: "the disk is not ready and does not say why",
	{0x04, 0x01}: "the disk is becoming ready",
	{0x04, 0x02}: "the disk stands still and has to be started",
	{0x04, 0x04}: "the disk is being formatted",
	{0x04, 0x09}: "the disk tests itself",
	{0x04, 0x1b}: "the disk is sanitizing itself",
	{0x20, 0x00}: "the disk or what stands before it does not know the command",
	{0x20, 0x02}: "the disk denies access: it is locked",
	{0x21, 0x04}: "the disk aborted the ATA command", // what libata makes of ABRT
	{0x24, 0x00}: "the disk or what stands before it does not take this form of the command",
	{0x26, 0x00}: "the disk does not take the command's parameters",
	{0x27, 0x00}: "the disk is write-protected",
	{0x31, 0x01}: "the format failed",
	{0x31, 0x03}: "the sanitize failed",
	{0x3a, 0x00}: "there is no medium",
	{0x44, 0x00}: "the disk has failed inside",
	{0x5d, 0x00}: "the disk predicts its failure",
	{0x74, 0x71}: "the disk is locked by its own encryption",
}

// keyTexts are the sense keys, for codes that are not in senseTexts.
var keyTexts = map[byte]string{
	2: "the disk is not ready", 3: "the medium is damaged", 4: "the disk has failed inside", 5: "the disk refuses the command",
	6: "the disk was reset or changed", 7: "the disk is protected", 0xb: "the disk aborted the command",
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

// scsiEnd is how a SCSI command ended: its SCSI status, what the host adapter's driver says (0: nothing), and the sense data.
// A CHECK CONDITION without sense data that can be read is a failure: nobody knows what the disk did.
func scsiEnd(status byte, host uint16, sense []byte) error {
	const good, checkCondition, timedOut = 0x00, 0x02, 0x03
	switch {
	case host == timedOut:
		return errors.New("the disk did not answer in time (SCSI host status 0003h)")
	case host != 0:
		return fmt.Errorf("the way to the disk failed (SCSI status %02xh, host status %04xh)", status, host)
	case status == good:
		return nil
	case status != checkCondition:
		return fmt.Errorf("the disk did not take the command (SCSI status %02xh)", status)
	}
	c, ok := SenseOf(sense)
	switch {
	case !ok:
		return errors.New("the command failed, and nothing says why (SCSI check condition without sense data)")
	case c.benign():
		return nil
	}
	return c
}

// millis is a time as the kernel takes it: milliseconds in 32 bits, at most 49 days.
func millis(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), 1<<32-1)) }
