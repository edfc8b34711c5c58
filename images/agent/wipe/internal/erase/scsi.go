package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// SCSI Block Commands 4 and Primary Commands 5.
const (
	cdbRequestSense = 0x03
	cdbInquiry      = 0x12
	cdbSanitize     = 0x48
	cdbReport       = 0xa3 // MAINTENANCE IN, with service action REPORT SUPPORTED OPERATION CODES

	reportCodes = 0x0c

	saOverwrite, saBlock, saCrypto = 0x01, 0x02, 0x03 // service actions of SANITIZE
	sanitizeImmed                  = 0x80

	keyNone, keyRecovered, keyNotReady, keyAttention = 0, 1, 2, 6
)

// progressOf reads the progress indication of sense data, from 0 to 1 (SPC-5, 4.5.2.4.4 and 4.5.3).
func progressOf(b []byte) (float64, bool) {
	if len(b) >= 18 && b[0]&0x7f == 0x70 && b[15]&0x80 != 0 {
		return float64(binary.BigEndian.Uint16(b[16:])) / 65536, true
	}
	if len(b) < 8 || b[0]&0x7f != 0x72 {
		return 0, false
	}
	for at := 8; at+8 <= len(b); at += 2 + int(b[at+1]) { // descriptors; the sense key specific one is type 2
		if b[at] == 2 && b[at+4]&0x80 != 0 {
			return float64(binary.BigEndian.Uint16(b[at+5:])) / 65536, true
		}
	}
	return 0, false
}

// scsiLadder reads what a disk behind the SCSI layer can do: an ATA disk is known by its vendor field (SAT-4, 8.1).
func scsiLadder(p passthrough.SCSI, sleep clock) Ladder {
	var l Ladder
	inquiry := make([]byte, 96)
	if _, err := p.Do([]byte{cdbInquiry, 0, 0, 0, byte(len(inquiry)), 0}, passthrough.FromDisk, inquiry, 10*time.Second); err != nil {
		l.note("the disk does not say what it is: %v", err)
		return l
	}
	if strings.TrimSpace(string(inquiry[8:16])) == "ATA" {
		return ataLadder(p, sleep)
	}
	for _, m := range []struct {
		name   string
		action byte
	}{{"scsi-sanitize-crypto", saCrypto}, {"scsi-sanitize-block", saBlock}, {"scsi-sanitize-overwrite", saOverwrite}} {
		if supports(p, cdbSanitize, m.action) {
			l.add(m.name, scsiSanitize(p, sleep, m.action))
		}
	}
	if len(l.Methods) == 0 {
		l.note("the disk has no sanitize; if it is a RAID controller's volume, the disks behind it hold what it does not show")
	}
	return l
}

// supports asks REPORT SUPPORTED OPERATION CODES about one service action.
func supports(p passthrough.SCSI, opcode, action byte) bool {
	b := make([]byte, 32)
	cdb := []byte{cdbReport, reportCodes, 0x02, opcode, 0, action, 0, 0, 0, byte(len(b)), 0, 0}
	_, err := p.Do(cdb, passthrough.FromDisk, b, 10*time.Second)
	return err == nil && b[1]&7 == 3
}

// parameters is the parameter list of a SANITIZE: an overwrite is told to be one pass of four bytes of zero (SBC-4, 5.30.2).
func parameters(action byte) []byte {
	if action == saOverwrite {
		return []byte{1, 0, 0, 4, 0, 0, 0, 0}
	}
	return nil
}

// scsiSanitize starts a SANITIZE and follows it by REQUEST SENSE.
func scsiSanitize(p passthrough.SCSI, sleep clock, action byte) func(context.Context, Progress) error {
	return func(ctx context.Context, report Progress) error {
		list, dir := parameters(action), passthrough.NoData
		if len(list) > 0 {
			dir = passthrough.ToDisk
		}
		cdb := []byte{cdbSanitize, sanitizeImmed | action, 0, 0, 0, 0, 0, 0, byte(len(list)), 0}
		_, err := p.Do(cdb, dir, list, 5*time.Minute)
		var c passthrough.CheckCondition
		if err != nil && (!errors.As(err, &c) || !sanitizing(c)) { // not: an earlier one still runs
			return err
		}
		still := standstill{limit: patience}
		for {
			done, running, err := sanitizeSense(p)
			if err != nil {
				return err
			}
			if !running {
				report(1, "")
				return nil
			}
			report(done, "as the disk's sense data say")
			if err := still.at(done); err != nil {
				return err
			}
			if err := sleep(ctx, poll); err != nil {
				return err
			}
		}
	}
}

// sanitizeSense asks a disk that was told to sanitize itself how far it is.
func sanitizeSense(p passthrough.SCSI) (done float64, running bool, err error) {
	b := make([]byte, 252)
	if _, err := p.Do([]byte{cdbRequestSense, 0, 0, 0, byte(len(b)), 0}, passthrough.FromDisk, b, 10*time.Second); err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	c, ok := passthrough.SenseOf(b)
	switch {
	case !ok:
		return 0, false, ErrUnsure
	case sanitizing(c):
		done, _ = progressOf(b)
		return done, true, nil
	case c.Key == keyAttention: // news of a reset or a change, told once and before anything else
		return 0, true, nil
	case c.Key <= keyRecovered:
		return 0, false, nil
	}
	return 0, false, c // 3/31/03 is SANITIZE COMMAND FAILED
}

// sanitizing is LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS.
func sanitizing(c passthrough.CheckCondition) bool {
	return (c.Key == keyNotReady || c.Key == keyNone) && c.ASC == 0x04 && c.ASCQ == 0x1b
}
