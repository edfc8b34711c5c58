package erase

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
)

// step is one command of a trace and what the disk answered.
type step struct {
	CDB, Data, Sense string // hex
	Err              error
}

// play makes a disk that takes the commands of its steps.
func play(t *testing.T, steps ...step) *replay.Trace {
	p := &replay.Trace{TB: t}
	for _, s := range steps {
		p.Steps = append(p.Steps, replay.Step(s))
	}
	return p
}

func unhex(t *testing.T, s string) []byte { return replay.Bytes(t, s) }

const (
	inquirySAS   = "00000602 5b000012 53454147415445 20" // SEAGATE
	inquiryATA   = "00000602 5b000012 41544120202020 20"
	askInquiry   = "120000006000"
	askCrypto    = "a30c02480003000000200000"
	askBlock     = "a30c02480002000000200000"
	askOverwrite = "a30c02480001000000200000"
	askSense     = "03000000fc00"
)

var (
	invalid    = passthrough.CheckCondition{Key: 5, ASC: 0x20, ASCQ: 0}
	inProgress = "70000200 0000000a 00000000 041b 00 80 8000" // half of it
)

func TestSCSISanitize(t *testing.T) {
	look := []step{{askInquiry, inquirySAS, "", nil}, {askCrypto, "0003", "", nil}, {askBlock, "0001", "", nil}, {askOverwrite, "0001", "", nil}}
	for name, c := range map[string]struct {
		steps []step
		told  []float64
		err   error
	}{
		"to its end": {[]step{{"48830000000000000000", "", "", nil}, {askSense, inProgress, "", nil}, {askSense, "70000000 0000000a", "", nil}}, []float64{0.5, 1}, nil},
		"refused":    {[]step{{"48830000000000000000", "", "", invalid}}, nil, invalid},
		"fails": {[]step{{"48830000000000000000", "", "", nil}, {askSense, inProgress, "", nil}, {askSense, "70000300 0000000a 00000000 3103", "", nil}},
			[]float64{0.5}, passthrough.CheckCondition{Key: 3, ASC: 0x31, ASCQ: 3}},
		"already at it": {[]step{{"48830000000000000000", "", "", passthrough.CheckCondition{Key: 2, ASC: 0x04, ASCQ: 0x1b}}, {askSense, "72000000 00000000", "", nil}}, []float64{1}, nil},
		"falls silent":  {[]step{{"48830000000000000000", "", "", nil}, {askSense, "", "", errors.New("host status 0001h")}}, nil, ErrUnsure},
	} {
		p := play(t, slices.Concat(look, c.steps)...)
		l := scsiLadder(p, atOnce)
		if !slices.Equal(names(l), []string{"scsi-sanitize-crypto"}) {
			t.Fatalf("%v, notes %v", names(l), l.Notes)
		}
		told, err := run(t, l, "scsi-sanitize-crypto")
		if !slices.Equal(told, c.told) || !errors.Is(err, c.err) {
			t.Errorf("%s: told %v, error %v", name, told, err)
		}
		p.Over()
	}
}

// A SAS disk with platters has mostly no other sanitize than one that overwrites: one pass of zeros.
func TestSCSISanitizeOverwrite(t *testing.T) {
	p := play(t, step{askInquiry, inquirySAS, "", nil}, step{askCrypto, "0001", "", nil}, step{askBlock, "0001", "", nil}, step{askOverwrite, "0003", "", nil},
		step{"48810000000000000800", "01000004 00000000", "", nil}, step{askSense, inProgress, "", nil}, step{askSense, "70000000 0000000a", "", nil})
	l := scsiLadder(p, atOnce)
	if !slices.Equal(names(l), []string{"scsi-sanitize-overwrite"}) || len(l.Notes) > 0 {
		t.Fatalf("%v, notes %v", names(l), l.Notes)
	}
	if told, err := run(t, l, "scsi-sanitize-overwrite"); err != nil || !slices.Equal(told, []float64{0.5, 1}) {
		t.Errorf("told %v, error %v", told, err)
	}
	p.Over()
}

func TestSCSIDiskWithoutSanitize(t *testing.T) {
	p := play(t, step{askInquiry, inquirySAS, "", nil}, step{askCrypto, "", "", invalid}, step{askBlock, "0001", "", nil}, step{askOverwrite, "0001", "", nil})
	if l := scsiLadder(p, atOnce); len(l.Methods) > 0 || !strings.Contains(l.Notes[0], "RAID controller") {
		t.Errorf("%+v", l)
	}
	p.Over()
	p = play(t, step{askInquiry, "", "", errors.New("inappropriate ioctl for device")})
	if l := scsiLadder(p, atOnce); len(l.Methods) > 0 || !strings.Contains(l.Notes[0], "inappropriate ioctl") {
		t.Errorf("%+v", l)
	}
}

func TestSense(t *testing.T) {
	for text, want := range map[string]string{
		"70000200 0000000a 00000000 041b 00 80 4000": "2/04/1b 0.25 true",
		"7202041b 00000008 0206 0000 80 c000 00":     "2/04/1b 0.75 true",
		"72010000 0000000e 090c00000000000000000000": "1/00/00 0 false",
		"70000500 0000000a 00000000 2400":            "5/24/00 0 false",
		"7000":                                       "none",
		"":                                           "none",
		"720200 1b000000ff 02ff":                     "none",
		"7202041b 000000ff 0206":                     "2/04/1b 0 false",
	} {
		b := unhex(t, text)
		got := "none"
		if c, ok := passthrough.SenseOf(b); ok {
			done, told := progressOf(b)
			got = fmt.Sprintf("%x/%02x/%02x %v %v", c.Key, c.ASC, c.ASCQ, done, told)
		}
		if want != "none" && got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

func FuzzSense(f *testing.F) {
	f.Add([]byte{0x72, 2, 4, 0x1b, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 0xc0, 0, 0})
	f.Add([]byte{0x72, 1, 0, 0x1d, 0, 0, 0, 14, 9, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50})
	f.Fuzz(func(t *testing.T, b []byte) {
		passthrough.SenseOf(b)
		if done, ok := progressOf(b); ok && (done < 0 || done > 1) {
			t.Errorf("progress %v", done)
		}
		passthrough.Returned(b)
	})
}
