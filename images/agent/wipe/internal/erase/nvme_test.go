package erase

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

// at once is a clock that does not wait.
func atOnce(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }

func names(l Ladder) []string {
	var out []string
	for _, m := range l.Methods {
		out = append(out, m.Name)
	}
	return out
}

func run(t *testing.T, l Ladder, name string) (told []float64, err error) {
	t.Helper()
	for _, m := range l.Methods {
		if m.Name == name {
			err = m.Run(t.Context(), func(done float64, _ string) { told = append(told, done) })
			return told, err
		}
	}
	t.Fatalf("no method %q in %v", name, names(l))
	return nil, nil
}

// controller answers admin commands as the NVM Express specification says.
type controller struct {
	oacs       uint16
	sanicap    uint32
	fna        byte
	namespaces int
	flbas, dps byte
	sstat      []byte // the sanitize log's states, one per reading, the last for good
	refuse     map[uint8]error
	action     byte // of the latest sanitize

	sent []string // what changed something
}

func (c *controller) Namespace() (uint32, error) { return 1, nil }

func (c *controller) Do(a passthrough.Admin) error {
	if err := c.refuse[a.Opcode]; err != nil {
		return err
	}
	switch {
	case a.Opcode == opIdentify && a.CDW[0] == cnsController:
		binary.LittleEndian.PutUint32(a.Data[80:], version11)
		binary.LittleEndian.PutUint16(a.Data[256:], c.oacs)
		binary.LittleEndian.PutUint32(a.Data[328:], c.sanicap)
		a.Data[524] = c.fna
	case a.Opcode == opIdentify && a.CDW[0] == cnsActive:
		for i := range c.namespaces {
			binary.LittleEndian.PutUint32(a.Data[4*i:], uint32(i+1))
		}
	case a.Opcode == opIdentify && a.NSID == 1:
		a.Data[26], a.Data[29] = c.flbas, c.dps
	case a.Opcode == opGetLogPage && a.CDW[0] == 0x007f0081 && a.NSID == allNamespaces:
		a.Data[1], a.Data[2], a.Data[4] = 0x80, c.sstat[0], c.action // half of it
		if len(c.sstat) > 1 {
			c.sstat = c.sstat[1:]
		}
	case a.Opcode == opSanitize || a.Opcode == opFormat:
		if a.Opcode == opSanitize && a.CDW[0] != sanitizeExitFailure {
			c.action = byte(a.CDW[0]) & sanitizeAction
		}
		c.sent = append(c.sent, fmt.Sprintf("%02x ns %d cdw10 %#x", a.Opcode, a.NSID, a.CDW[0]))
	default:
		return passthrough.Status(0x4002) // invalid field
	}
	return nil
}

func TestNVMeLadder(t *testing.T) {
	for name, c := range map[string]struct {
		c     controller
		names []string
		note  string
	}{
		"all":                    {controller{oacs: oacsFormat, sanicap: 7, fna: fnaCrypto, namespaces: 1}, []string{"nvme-sanitize-crypto", "nvme-sanitize-block", "nvme-format-crypto", "nvme-format-user-data", "nvme-sanitize-overwrite"}, ""},
		"overwrite only":         {controller{sanicap: 4, namespaces: 1}, []string{"nvme-sanitize-overwrite"}, "cannot format"},
		"overwrite of two":       {controller{sanicap: 4, namespaces: 2}, nil, "all 2 namespaces"},
		"format":                 {controller{oacs: oacsFormat, namespaces: 1}, []string{"nvme-format-user-data"}, "no sanitize"},
		"two namespaces":         {controller{oacs: oacsFormat, sanicap: 3, namespaces: 2}, []string{"nvme-format-user-data"}, "all 2 namespaces"},
		"two formatted together": {controller{oacs: oacsFormat, sanicap: 3, fna: fnaEraseAll, namespaces: 2}, nil, "a format would erase all 2"},
		"one formatted alone":    {controller{oacs: oacsFormat, fna: fnaEraseAll | fnaFormatAll, namespaces: 1}, []string{"nvme-format-user-data"}, ""},
		"does not identify":      {controller{refuse: map[uint8]error{opIdentify: passthrough.Status(1)}}, nil, "NVMe status 0x0001"},
	} {
		l := nvmeLadder(&c.c, atOnce)
		if !slices.Equal(names(l), c.names) || !strings.Contains(strings.Join(l.Notes, "\n"), c.note) {
			t.Errorf("%s: %v, notes %q", name, names(l), l.Notes)
		}
		if len(c.c.sent) > 0 {
			t.Errorf("%s: looking sent %v", name, c.c.sent)
		}
	}
}

// What erases every namespace of a drive is offered for all of them together only.
func TestNVMeSharedLadder(t *testing.T) {
	for name, c := range map[string]struct {
		c      controller
		shared []string
		alone  []string
	}{
		"one namespace":        {controller{oacs: oacsFormat, sanicap: 7, fna: fnaCrypto | fnaEraseAll, namespaces: 1}, nil, []string{"nvme-sanitize-crypto", "nvme-sanitize-block", "nvme-format-crypto", "nvme-format-user-data", "nvme-sanitize-overwrite"}},
		"formatted together":   {controller{oacs: oacsFormat, sanicap: 7, fna: fnaEraseAll, namespaces: 3}, []string{"nvme-sanitize-crypto", "nvme-sanitize-block", "nvme-format-user-data", "nvme-sanitize-overwrite"}, nil},
		"formatted one by one": {controller{oacs: oacsFormat, sanicap: 1, namespaces: 2}, []string{"nvme-sanitize-crypto"}, []string{"nvme-format-user-data"}},
	} {
		l := nvmeLadder(&c.c, atOnce)
		if got := names(Ladder{Methods: l.Shared}); !slices.Equal(got, c.shared) || !slices.Equal(names(l), c.alone) || l.Among != c.c.namespaces {
			t.Errorf("%s: %v, %v of %d", name, got, names(l), l.Among)
		}
	}
	for fna, want := range map[byte]string{
		fnaFormatAll:               "80 ns 4294967295 cdw10 0x200",
		fnaFormatAll | fnaEraseAll: "80 ns 4294967295 cdw10 0x200",
		fnaEraseAll:                "80 ns 1 cdw10 0x200", // the second may have sectors of another size
	} {
		d := &controller{oacs: oacsFormat, fna: fna, namespaces: 2}
		if err := nvmeLadder(d, atOnce).Shared[0].Run(t.Context(), func(float64, string) {}); err != nil || !slices.Equal(d.sent, []string{want}) {
			t.Errorf("%#x: %v, sent %v", fna, err, d.sent)
		}
	}
}

func TestNVMeSanitize(t *testing.T) {
	for name, c := range map[string]struct {
		sstat []byte
		sent  []string
		err   string
	}{
		"to its end":            {[]byte{sanitizeNever, sanitizeRunning, sanitizeRunning, sanitizeDone}, []string{"84 ns 0 cdw10 0x4"}, ""},
		"without deallocating":  {[]byte{sanitizeDone, sanitizeDoneKept}, []string{"84 ns 0 cdw10 0x4"}, ""},
		"fails":                 {[]byte{sanitizeNever, sanitizeRunning, sanitizeFailed}, []string{"84 ns 0 cdw10 0x4", "84 ns 0 cdw10 0x1"}, "failed"},
		"after a failed one":    {[]byte{sanitizeFailed, sanitizeRunning, sanitizeDone}, []string{"84 ns 0 cdw10 0x1", "84 ns 0 cdw10 0x4"}, ""},
		"after a cut":           {[]byte{sanitizeRunning, sanitizeRunning, sanitizeDone}, []string{"84 ns 0 cdw10 0x4"}, ""},
		"the log knows nothing": {[]byte{sanitizeNever, sanitizeNever}, []string{"84 ns 0 cdw10 0x4"}, ErrUnsure.Error()},
	} {
		d := &controller{sanicap: sanCrypto, namespaces: 1, sstat: c.sstat}
		_, err := run(t, nvmeLadder(d, atOnce), "nvme-sanitize-crypto")
		if !slices.Equal(d.sent, c.sent) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: sent %v, error %v", name, d.sent, err)
		}
	}
	d := &controller{sanicap: sanBlock, namespaces: 1, sstat: []byte{sanitizeNever, sanitizeRunning, sanitizeDone}}
	if told, err := run(t, nvmeLadder(d, atOnce), "nvme-sanitize-block"); err != nil || !slices.Equal(told, []float64{0.5, 1}) || d.sent[0] != "84 ns 0 cdw10 0x2" {
		t.Errorf("told %v, sent %v, error %v", told, d.sent, err)
	}
}

// An overwriting sanitize is one pass of zeros, and is followed by its log as the others are.
func TestNVMeSanitizeOverwrite(t *testing.T) {
	d := &controller{sanicap: sanOverwrite, namespaces: 1, sstat: []byte{sanitizeNever, sanitizeRunning, sanitizeDone}}
	if told, err := run(t, nvmeLadder(d, atOnce), "nvme-sanitize-overwrite"); err != nil || !slices.Equal(told, []float64{0.5, 1}) || !slices.Equal(d.sent, []string{"84 ns 0 cdw10 0x13"}) {
		t.Errorf("told %v, sent %v, error %v", told, d.sent, err)
	}
	d = &controller{sanicap: sanOverwrite, namespaces: 1, sstat: []byte{sanitizeNever, sanitizeRunning, sanitizeFailed}}
	if _, err := run(t, nvmeLadder(d, atOnce), "nvme-sanitize-overwrite"); err == nil || !strings.Contains(err.Error(), "sanitize log says that it failed") {
		t.Error(err)
	}
}

// A controller whose formats reach every namespace is told so, unless it takes no such order.
func TestNVMeFormatReachesAll(t *testing.T) {
	for name, c := range map[string]struct {
		fna  byte
		sent string
	}{
		"one":                             {0, "80 ns 1 cdw10 0x200"},
		"format reaches all":              {fnaFormatAll, "80 ns 4294967295 cdw10 0x200"},
		"erasing reaches all":             {fnaEraseAll, "80 ns 4294967295 cdw10 0x200"},
		"reaches all, takes no broadcast": {fnaFormatAll | fnaEraseAll | fnaNoBroadcast, "80 ns 1 cdw10 0x200"},
	} {
		d := &controller{oacs: oacsFormat, fna: c.fna, namespaces: 1}
		if _, err := run(t, nvmeLadder(d, atOnce), "nvme-format-user-data"); err != nil || !slices.Equal(d.sent, []string{c.sent}) {
			t.Errorf("%s: sent %v, error %v", name, d.sent, err)
		}
	}
}

// TestNVMeFormat: the LBA format, metadata and protection information stay what they are.
func TestNVMeFormat(t *testing.T) {
	for _, c := range []struct {
		flbas, dps byte
		dword      uint32
	}{{0, 0, 1 << 9}, {0x02, 0, 1<<9 | 2}, {0x13, 0x09, 1<<9 | 3 | 1<<4 | 1<<5 | 1<<8}, {0x61, 0, 1<<9 | 1 | 3<<12}} {
		d := &controller{oacs: oacsFormat, namespaces: 1, flbas: c.flbas, dps: c.dps}
		if _, err := run(t, nvmeLadder(d, atOnce), "nvme-format-user-data"); err != nil || d.sent[0] != fmt.Sprintf("80 ns 1 cdw10 %#x", c.dword) {
			t.Errorf("flbas %#x dps %#x: sent %v, error %v", c.flbas, c.dps, d.sent, err)
		}
	}
	refused := &controller{oacs: oacsFormat, namespaces: 1, refuse: map[uint8]error{opFormat: passthrough.Status(0x10a)}}
	if _, err := run(t, nvmeLadder(refused, atOnce), "nvme-format-user-data"); !errors.Is(err, passthrough.Status(0x10a)) {
		t.Errorf("a refused format gave %v", err)
	}
}
