package passthrough_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
)

// What real disks, bridges and kernels sent back (sources in replay/captured/README.md), and what it means.
func TestCapturedEnds(t *testing.T) {
	const checkCondition = 2
	for name, c := range map[string]struct {
		status byte
		sense  string
		err    string // what a person reads; "": the command succeeded
		ata    byte   // the disk's status that came back
		r      passthrough.Registers
	}{
		"Linux 2.6, success with registers": {checkCondition, "72 00 00 00 00 00 00 0e 09 0c 00 00 00 00 00 3f 00 18 00 a6 e0 50", "",
			0x50, passthrough.Registers{LBA: 0xa6183f, Told: true, Whole: true}},
		"Linux since 2.6.38, success with registers": {checkCondition, "72 01 00 1d 00 00 00 0e 09 0c 00 00 00 01 00 00 00 00 00 00 00 50", "",
			0x50, passthrough.Registers{Count: 1, Told: true, Whole: true}},
		"WD USB disk, success in the fixed format": {checkCondition, "f0 00 01 00 50 40 3c 0a 80 00 00 00 00 1d 00 00 00 00", "",
			0x50, passthrough.Registers{Count: 0x3c, Told: true}},
		"Linux 6.6.44, success in the fixed format": {checkCondition, "f0 00 01 00 50 40 ff 0a 00 00 78 00 00 1d 00 00 00 00", "",
			0x50, passthrough.Registers{Count: 0xff, LBA: 0x7800, Told: true}},
		"SATA disk without APM, newer Linux": {checkCondition, "f0 00 05 04 51 40 80 0a 00 00 00 00 21 04 00 00 00 00",
			"the disk aborted the ATA command (SCSI sense 5/21/04)", 0x51, passthrough.Registers{Count: 0x80, Told: true}},
		"SMART RETURN STATUS, well": {checkCondition, "72 01 00 1d 00 00 00 0e 09 0c 00 00 00 00 00 00 00 4f 00 c2 e0 50", "",
			0x50, passthrough.Registers{LBA: 0xc24f00, Told: true, Whole: true}},
		"SMART RETURN STATUS, failing, code 04/1d": {checkCondition, "72 01 04 1d 00 00 00 0e 09 0c 00 00 00 00 00 00 00 f4 00 2c 40 50", "",
			0x50, passthrough.Registers{LBA: 0x2cf400, Told: true, Whole: true}},
		"USB dock of a Seagate: a status of zero, cut short": {checkCondition, "72 00 00 00 00 00 00 0a 09 0c 00 00 00 01 00 00 00 00 00 00 00 00 00 00", "", 0, passthrough.Registers{}},
		"USB bridge that leaves other bytes": {checkCondition, "f0 00 05 00 00 00 00 0a 00 aa 55 40 20 00 00 00 00 00",
			"does not know the command (SCSI sense 5/20/00)", 0, passthrough.Registers{}},
		"frozen disk, set password, older Linux": {checkCondition, "70 00 05 00 00 00 00 0a 04 51 40 00 21 04 00 00 00 00",
			"the disk aborted the ATA command (SCSI sense 5/21/04)", 0, passthrough.Registers{}},
		"frozen disk, unlock, older Linux": {checkCondition, "70 00 05 00 00 00 00 0a 04 51 40 01 21 04 00 00 00 00",
			"the disk aborted the ATA command (SCSI sense 5/21/04)", 0, passthrough.Registers{}},
		"SATA disk without DCO": {checkCondition, "70 00 05 00 00 00 00 0a 04 53 40 01 21 04 00 00 00 00",
			"the disk aborted the ATA command (SCSI sense 5/21/04)", 0, passthrough.Registers{}},
		"laptop's dock, unlock": {checkCondition, "70 00 0b 00 00 00 00 0a 00 00 00 00 00 00 00 00 00 00",
			"the disk aborted the command (SCSI sense b/00/00)", 0, passthrough.Registers{}},
		"Seagate SAS disk, ATA command": {checkCondition, "72 05 20 00 00 00 00 1c 02 06 00 00 cf 00 00 00 03 02 00 01 80 0e 00 00 00 00 00 00 00 00 00 00",
			"does not know the command (SCSI sense 5/20/00)", 0, passthrough.Registers{}},
		"USB card reader, ATA command": {checkCondition, "70 00 05 00 00 00 00 0a 00 00 00 00 24 00 00 00 00 00",
			"does not take this form of the command (SCSI sense 5/24/00)", 0, passthrough.Registers{}},
		"PATA disk behind ide-scsi, no sense at all":   {checkCondition, "", "nothing says why", 0, passthrough.Registers{}},
		"SAS3008, sanitize status: registers of zeros": {0, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00", "", 0, passthrough.Registers{}},
		"Kingston SSD, OpenWrt: a buffer of zeros":     {0, strings.Repeat("00 ", 32), "", 0, passthrough.Registers{}},
	} {
		sense := replay.Bytes(t, c.sense)
		err := passthrough.SCSIEnd(c.status, 0, sense)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: ended with %v, not %q", name, err, c.err)
		}
		if status, _, r := passthrough.Returned(sense); status != c.ata || r != c.r {
			t.Errorf("%s: status %02xh, %+v", name, status, r)
		}
	}
}

// The same through a command, with forms that are written from the specifications: nothing is taken for a success, and no
// registers for told, on half a word.
func TestATAEndsBySpecification(t *testing.T) {
	aborted := passthrough.CheckCondition{Key: 0xb}
	for name, c := range map[string]struct {
		sense string
		err   error
		want  string
		told  bool
	}{
		"timed out, last registers in the descriptor":  {"72 0b 00 00 00 00 00 0e 09 0c 00 00 00 00 00 00 00 00 00 00 00 50", aborted, "SCSI sense b/00/00", true},
		"descriptor of zeros":                          {"72 01 00 1d 00 00 00 0e 09 0c 00 00 00 00 00 00 00 00 00 00 00 00", nil, "", false},
		"descriptor while busy":                        {"72 01 00 1d 00 00 00 0e 09 0c 00 00 00 00 00 00 00 00 00 00 00 d0", nil, "", false},
		"fixed, aborted":                               {"f0 00 05 04 51 40 01 0a 00 00 00 00 21 04", passthrough.CheckCondition{Key: 5, ASC: 0x21, ASCQ: 4}, "status 51h, error 04h", true},
		"fixed, a block's address that looks like one": {"f0 00 03 00 50 40 3c 0a 00 00 00 00 11 00", passthrough.CheckCondition{Key: 3, ASC: 0x11}, "the medium is damaged", false},
		"fixed, cut":                                   {"f0 00 01 00 50 40 3c 0a", nil, "", false},
		"device fault":                                 {"72 04 44 00 00 00 00 0e 09 0c 00 04 00 00 00 00 00 00 00 00 40 71", passthrough.CheckCondition{Key: 4, ASC: 0x44}, "the disk aborted the command (ATA command b4h: status 71h, error 04h)", true},
	} {
		p := &replay.Trace{TB: t, Steps: []replay.Step{{CDB: "85 07 20 00 00 00 00 00 00 00 00 00 00 40 b4 00", Sense: c.sense, Err: c.err}}}
		r, err := passthrough.ATA{Port: p}.Do(passthrough.ATACommand{Protocol: passthrough.NonData, Ext: true, Command: 0xb4})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || r.Told != c.told {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for name, c := range map[string]struct {
		status byte
		host   uint16
		want   string
	}{
		"timeout": {0, 3, "did not answer in time"}, "link lost": {0, 1, "the way to the disk failed"}, "busy": {8, 0, "did not take the command"},
		"conflict": {0x18, 0, "SCSI status 18h"}, "check without sense": {2, 0, "nothing says why"},
	} {
		if err := passthrough.SCSIEnd(c.status, c.host, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Our command blocks are those that hdparm was captured sending.
func TestCapturedCommandBlocks(t *testing.T) {
	sector := make([]byte, 512)
	for name, c := range map[string]struct {
		cdb string
		cmd passthrough.ATACommand
	}{
		"IDENTIFY DEVICE":               {"85 08 0e 00 00 00 01 00 00 00 00 00 00 40 ec 00", passthrough.ATACommand{Protocol: passthrough.PIOIn, Command: 0xec, Data: sector}},
		"DEVICE CONFIGURATION IDENTIFY": {"85 08 0e 00 c2 00 01 00 00 00 00 00 00 40 b1 00", passthrough.ATACommand{Protocol: passthrough.PIOIn, Features: 0xc2, Command: 0xb1, Data: sector}},
		"CHECK POWER MODE":              {"85 06 20 00 00 00 00 00 00 00 00 00 00 40 e5 00", passthrough.ATACommand{Protocol: passthrough.NonData, Command: 0xe5}},
		"SET FEATURES":                  {"85 06 20 00 03 00 00 00 00 00 00 00 00 40 ef 00", passthrough.ATACommand{Protocol: passthrough.NonData, Features: 3, Command: 0xef}},
	} {
		p := &replay.Trace{TB: t, Steps: []replay.Step{{CDB: c.cdb}}}
		if _, err := (passthrough.ATA{Port: p}).Do(c.cmd); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p.Over()
	}
}

// Pages of real disks: their sums are right, and they say what their makers do.
func TestCapturedIdentities(t *testing.T) {
	const setSMART, setSecurity = 0, 1
	for name, c := range map[string]struct {
		bytes           int64
		smart, security bool
		enabled         bool // SMART
	}{
		"ata-samsung-870qvo":      {4000787030016, true, true, true},
		"ata-samsung-850evo":      {1000204886016, true, true, true},
		"ata-wd-hs7282":           {28001039286272, true, true, true}, // sectors of 4096 bytes
		"ata-seagate-st3400633as": {400088457216, true, true, true},
		"ata-wd-wd4000kd":         {400088457216, true, true, true},
		"ata-maxtor-6b200m0":      {200049647616, true, false, true},
	} {
		page := replay.Page(t, name+".words", 512)
		id, err := passthrough.ParseIdentity(page)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		smart, told := id.Supports(setSMART)
		security, _ := id.Supports(setSecurity)
		on, said := id.Enabled(setSMART)
		if id.Bytes() != c.bytes || smart != c.smart || security != c.security || on != c.enabled || !told || !said {
			t.Errorf("%s: %d bytes, SMART %v %v, security %v, told %v %v", name, id.Bytes(), smart, on, security, told, said)
		}
		page[2*128] ^= 1
		if _, err := passthrough.ParseIdentity(page); !errors.Is(err, passthrough.ErrIdentity) {
			t.Errorf("%s: with a wrong bit: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "zeros": make([]byte, 512), "ones": bytes.Repeat([]byte{0xff}, 512), "short": make([]byte, 511),
		"CD drive":                  append([]byte{0xc0, 0x85}, make([]byte, 510)...),
		"a card reader's leftovers": replay.Bytes(t, "2e 2e 2f 2e 2e 2f 2e 2e 2f 64 65 76 69 63 65 73 2f 70 63 69 30 30 30 30 3a 30 30 2f 30 30"),
	} {
		if _, err := passthrough.ParseIdentity(b); !errors.Is(err, passthrough.ErrIdentity) {
			t.Errorf("%s: %v", name, err)
		}
	}
	old := append([]byte{0x5a, 0x0c}, make([]byte, 510)...) // written: a disk of ATA-3 tells nothing of its command sets
	id, err := passthrough.ParseIdentity(old)
	if _, told := id.Supports(setSMART); err != nil || told {
		t.Errorf("an old disk: told %v, %v", told, err)
	}
}

// Times beyond the kernel's field are its longest, not a remainder: an erase that is given up half way leaves a locked disk.
func TestLongTimes(t *testing.T) {
	for d, want := range map[time.Duration]uint32{time.Second: 1000, 91 * time.Hour: 327600000, 100 * 24 * time.Hour: 1<<32 - 1} {
		if got := passthrough.Millis(d); got != want {
			t.Errorf("%s: %d ms", d, got)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(replay.Page(f, "ata-wd-hs7282.words", 512))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := passthrough.ParseIdentity(b); err == nil && id.Bytes() < 0 {
			t.Errorf("%d bytes", id.Bytes())
		}
	})
}

// NVMe statuses that Format NVM and Sanitize were captured ending with: hints about retrying do not matter.
func TestCapturedNVMeStatuses(t *testing.T) {
	for status, want := range map[passthrough.Status]string{
		0x6001: "does not know the command", 0x2001: "does not know the command", 0x6002: "does not take this form", 0x4002: "does not take this form",
		0x200c: "wants other commands", 0x2020: "write-protected", 0x410a: "does not take the format", 0x210a: "does not take the format",
		0x010a: "does not take the format", 0x4286: "revert it with the PSID", 0x7ff: "NVMe status 0x07ff",
	} {
		if got := status.Error(); !strings.Contains(got, want) || !strings.Contains(got, "NVMe status 0x") {
			t.Errorf("%#x: %s", uint16(status), got)
		}
	}
}
