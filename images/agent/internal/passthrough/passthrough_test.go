package passthrough

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"
)

// Sense data of both forms, as SPC-5 draws them, and whatever else a disk may send.
func TestSense(t *testing.T) {
	fixed := []byte{0x70, 0, 0x03, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0x04}
	for name, c := range map[string]struct {
		b    []byte
		want CheckCondition
		ok   bool
	}{
		"nothing":              {nil, CheckCondition{}, false},
		"fixed":                {fixed, CheckCondition{3, 0x11, 4}, true},
		"fixed, deferred":      {append([]byte{0x71}, fixed[1:]...), CheckCondition{3, 0x11, 4}, true},
		"fixed, valid bit":     {append([]byte{0xf0}, fixed[1:]...), CheckCondition{3, 0x11, 4}, true},
		"fixed, flags in key":  {append([]byte{0x70, 0, 0xe5}, fixed[3:]...), CheckCondition{5, 0x11, 4}, true},
		"fixed, cut":           {fixed[:13], CheckCondition{}, false},
		"descriptor":           {[]byte{0x72, 0x05, 0x20, 0x00, 0, 0, 0, 0}, CheckCondition{5, 0x20, 0}, true},
		"descriptor, deferred": {[]byte{0x73, 0xf2, 0x3a, 0x01, 0, 0, 0, 0}, CheckCondition{2, 0x3a, 1}, true},
		"descriptor, cut":      {[]byte{0x72, 0x05, 0x20, 0, 0, 0, 0}, CheckCondition{}, false},
		"vendor's own":         {append([]byte{0x7f}, fixed[1:]...), CheckCondition{}, false},
	} {
		if got, ok := SenseOf(c.b); got != c.want || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", name, got, ok, c.want, c.ok)
		}
	}
	if s := (CheckCondition{5, 0x20, 0}).Error(); s != "the disk or what stands before it does not know the command (SCSI sense 5/20/00)" {
		t.Error(s)
	}
}

// status is sense data with an ATA Status Return descriptor, after another descriptor when other is set.
func status(ata byte, count uint16, lba uint64, other bool) []byte {
	b := []byte{0x72, 1, 0, 0x1d, 0, 0, 0, 14}
	if other {
		b = append(b, 0x00, 0x0a, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	return append(b, 0x09, 12, 1, 0, byte(count>>8), byte(count), byte(lba>>24), byte(lba), byte(lba>>32), byte(lba>>8), byte(lba>>40), byte(lba>>16), 0x40, ata)
}

func TestReturnedRegisters(t *testing.T) {
	const count, lba = 0x1234, 0xa1b2c3d4e5f6
	for name, b := range map[string][]byte{"alone": status(0x50, count, lba, false), "behind another": status(0x50, count, lba, true)} {
		if s, _, r := Returned(b); s != 0x50 || r != (Registers{count, lba, true, true}) {
			t.Errorf("%s: %#x %#v", name, s, r)
		}
	}
	whole := status(0x50, count, lba, true)
	for n := range whole {
		if _, _, r := Returned(whole[:n]); r.Told {
			t.Errorf("cut at %d it is taken for whole", n)
		}
	}
	if _, _, r := Returned(append([]byte{0x70}, whole[1:]...)); r.Told {
		t.Error("fixed sense data without their code were taken for registers")
	}
	if _, _, r := Returned([]byte{0x72, 0, 0, 0, 0, 0, 0, 14, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); r.Told {
		t.Error("an empty descriptor was read")
	}
}

func FuzzReturned(f *testing.F) {
	f.Add(status(0x51, 1, 2, true))
	f.Add([]byte{0x72, 0, 0, 0, 0, 0, 0, 0xff, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { // they end, without a panic
		Returned(b)
		SenseOf(b)
	})
}

// port remembers a command and answers what it is told.
type port struct {
	cdb   []byte
	dir   Direction
	data  []byte
	sense []byte
	err   error
}

func (p *port) Do(cdb []byte, dir Direction, data []byte, _ time.Duration) ([]byte, error) {
	p.cdb, p.dir, p.data = bytes.Clone(cdb), dir, data
	return p.sense, p.err
}

// What ATA PASS-THROUGH (16) holds, byte for byte (SAT-4, table 124): a wrong byte here erases another range, or nothing.
func TestATACommandBlocks(t *testing.T) {
	sector := make([]byte, 512)
	for name, c := range map[string]struct {
		cmd ATACommand
		cdb []byte
		dir Direction
	}{
		"SECURITY UNLOCK": {ATACommand{Protocol: PIOOut, Command: 0xf2, Data: sector},
			[]byte{0x85, 5 << 1, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0xf2, 0}, ToDisk},
		"IDENTIFY DEVICE": {ATACommand{Protocol: PIOIn, Command: 0xec, Data: sector},
			[]byte{0x85, 4 << 1, 0x0e, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x40, 0xec, 0}, FromDisk},
		"SECURITY ERASE PREPARE": {ATACommand{Protocol: NonData, Command: 0xf3},
			[]byte{0x85, 3 << 1, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0xf3, 0}, NoData},
		"SANITIZE CRYPTO SCRAMBLE": {ATACommand{Protocol: NonData, Ext: true, Features: 0x0011, LBA: 0x43727970, Command: 0xb4},
			[]byte{0x85, 3<<1 | 1, 0x20, 0, 0x11, 0, 0, 0x43, 0x70, 0, 0x79, 0, 0x72, 0x40, 0xb4, 0}, NoData},
		"every byte of the LBA": {ATACommand{Protocol: NonData, Ext: true, Features: 0xf1f2, LBA: 0xa1b2c3d4e5f6, Command: 0xb4},
			[]byte{0x85, 3<<1 | 1, 0x20, 0xf1, 0xf2, 0, 0, 0xc3, 0xf6, 0xb2, 0xe5, 0xa1, 0xd4, 0x40, 0xb4, 0}, NoData},
	} {
		p := &port{}
		if _, err := (ATA{p}).Do(c.cmd); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(p.cdb, c.cdb) || p.dir != c.dir || len(p.data) != len(c.cmd.Data) {
			t.Errorf("%s: % x in direction %d\nwant % x in direction %d", name, p.cdb, p.dir, c.cdb, c.dir)
		}
	}
}

// The disk's own status decides. A check condition that only carries the registers is a success; without registers the
// transport's error is all there is.
func TestATAEnds(t *testing.T) {
	lost := errors.New("the link is down")
	for name, c := range map[string]struct {
		sense []byte
		err   error
		fails bool
		count uint16
	}{
		"no sense":               {nil, nil, false, 0},
		"registers":              {status(0x50, 7, 0, false), nil, false, 7},
		"registers with a check": {status(0x50, 7, 0, false), CheckCondition{Key: 1, ASC: 0, ASCQ: 0x1d}, false, 7},
		"error bit":              {status(0x51, 7, 0, false), nil, true, 7},
		"device fault":           {status(0x70, 7, 0, false), nil, true, 7},
		"check, no registers":    {[]byte{0x72, 5, 0x20, 0, 0, 0, 0, 0}, CheckCondition{5, 0x20, 0}, true, 0},
		"transport":              {nil, lost, true, 0},
	} {
		r, err := ATA{&port{sense: c.sense, err: c.err}}.Do(ATACommand{Protocol: NonData, Command: 0xe5})
		if (err != nil) != c.fails || r.Count != c.count {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// A file that is no disk refuses each command with the name of the call; nothing is taken for a success.
func TestFilesThatAreNoDisks(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var call *os.SyscallError
	if _, err := (NVMeFile{f}).Namespace(); !errors.As(err, &call) || call.Syscall != "NVME_IOCTL_ID" {
		t.Errorf("namespace: %v", err)
	}
	if err := (NVMeFile{f}).Do(Admin{Opcode: 0x06, Data: make([]byte, 4096), Timeout: time.Second}); !errors.As(err, &call) || call.Syscall != "NVME_IOCTL_ADMIN_CMD" {
		t.Errorf("admin command: %v", err)
	}
	if _, err := (SGFile{f}).Do([]byte{0x12, 0, 0, 0, 96, 0}, FromDisk, make([]byte, 96), time.Second); !errors.As(err, &call) || call.Syscall != "SG_IO" {
		t.Errorf("SCSI command: %v", err)
	}
	if s := Status(0x4002).Error(); s != "the drive does not take this form of the command (NVMe status 0x4002)" {
		t.Error(s)
	}
}
