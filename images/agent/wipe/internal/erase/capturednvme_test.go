package erase

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
)

// drive answers with the pages of a real drive: Identify Controller, and the sanitize log's, one per reading, the last for good.
type drive struct {
	identify   []byte
	active     int // namespaces that are attached
	allocated  int // and that exist
	logs       [][]byte
	refuse     map[uint8]passthrough.Status
	sent       []string // what changed something
	namespaces bool     // it was asked for lists of namespaces
}

func (d *drive) Namespace() (uint32, error) { return 1, nil }

func (d *drive) Do(a passthrough.Admin) error {
	if status, refused := d.refuse[a.Opcode]; refused {
		return status
	}
	switch {
	case a.Opcode == opIdentify && a.CDW[0] == cnsController:
		copy(a.Data, d.identify)
	case a.Opcode == opIdentify && (a.CDW[0] == cnsActive || a.CDW[0] == cnsAllocated):
		d.namespaces = true
		for i := range map[uint32]int{cnsActive: d.active, cnsAllocated: d.allocated}[a.CDW[0]] {
			binary.LittleEndian.PutUint32(a.Data[4*i:], uint32(i+1))
		}
	case a.Opcode == opIdentify:
	case a.Opcode == opGetLogPage:
		copy(a.Data, d.logs[0])
		if len(d.logs) > 1 {
			d.logs = d.logs[1:]
		}
	case a.Opcode == opSanitize || a.Opcode == opFormat:
		d.sent = append(d.sent, fmt.Sprintf("%02x ns %d cdw10 %#x", a.Opcode, a.NSID, a.CDW[0]))
	default:
		return passthrough.Status(0x4002)
	}
	return nil
}

// fields makes Identify Controller of what nvme id-ctrl printed. Where only some of it was published (SSSTC, Intel) the version
// is a likely one.
func fields(ver uint32, oacs uint16, sanicap uint32, nn uint32, fna byte) []byte {
	b := make([]byte, 4096)
	binary.LittleEndian.PutUint32(b[80:], ver)
	binary.LittleEndian.PutUint16(b[256:], oacs)
	binary.LittleEndian.PutUint32(b[328:], sanicap)
	binary.LittleEndian.PutUint32(b[516:], nn)
	b[524] = fna
	return b
}

func TestCapturedNVMeLadders(t *testing.T) {
	sanitizes, formats := []string{"nvme-sanitize-crypto", "nvme-sanitize-block"}, []string{"nvme-format-crypto", "nvme-format-user-data"}
	lexar := replay.Page(t, "nvme-lexar-nm790.words", 4096)
	samsung := replay.Page(t, "nvme-samsung-mzvlb256.words", 4096)
	for name, c := range map[string]struct {
		d     drive
		names []string
		note  string
	}{
		"Samsung MZVLB256HBHQ":  {drive{identify: samsung, active: 1}, append(slices.Clone(sanitizes), formats[1]), ""},
		"Lexar NM790":           {drive{identify: lexar, active: 1}, []string{sanitizes[1], formats[1]}, ""},
		"Toshiba KXG6AZNV512G":  {drive{identify: fields(0x10300, 0x1f, 0x3, 1, 0x4), active: 1, allocated: 1}, slices.Concat(sanitizes, formats), ""},
		"SK hynix HFS512GD9TNG": {drive{identify: fields(0x10300, 0x17, 0x3, 1, 0x6), active: 1}, slices.Concat(sanitizes, formats), ""},
		"Dera DERAP44YGM03T2US": {drive{identify: fields(0x20000, 0x1e, 0x40000002, 1, 0), active: 1, allocated: 1}, []string{sanitizes[1], formats[1]}, ""},
		"SSSTC CA6-8D1024":      {drive{identify: fields(0x10400, 0, 0xa0000002, 1, 0), active: 1}, sanitizes[1:], "cannot format"}, // its OACS was not printed
		"Intel SSDPEKKF256G8L":  {drive{identify: fields(0x10300, 0x2, 0, 1, 0x4), active: 1}, formats, "no sanitize"},
		"ADATA SX8000NP":        {drive{identify: fields(0x10200, 0x17, 0, 1, 0x1), active: 1}, formats[1:], "no sanitize"},
		// Written from the specification:
		"of NVMe 1.0, which has no lists": {drive{identify: fields(0, 0x6, 0, 1, 0)}, formats[1:], "no sanitize"},
		"one attached of two":             {drive{identify: fields(0x10400, 0x1f, 0x3, 32, 0x5), active: 1, allocated: 2}, nil, "all 2 namespaces"},
		"none":                            {drive{identify: fields(0x10400, 0x17, 0x3, 0, 0)}, nil, "lists no namespace"},
	} {
		l := nvmeLadder(&c.d, atOnce)
		if !slices.Equal(names(l), c.names) || !strings.Contains(strings.Join(l.Notes, "\n"), c.note) || len(c.d.sent) > 0 {
			t.Errorf("%s: %v, notes %q, sent %v", name, names(l), l.Notes, c.d.sent)
		}
		if old := binary.LittleEndian.Uint32(c.d.identify[80:]) < version11; old && c.d.namespaces {
			t.Errorf("%s: it was asked for a list that it does not have", name)
		}
	}
}

// log makes a sanitize log of what nvme sanitize-log printed; the times are those of every drive here: not said.
func log(sprog, sstat uint16, scdw10 uint32) []byte {
	b := append(make([]byte, 8), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"...)
	binary.LittleEndian.PutUint16(b, sprog)
	binary.LittleEndian.PutUint16(b[2:], sstat)
	binary.LittleEndian.PutUint32(b[4:], scdw10)
	return b
}

func TestCapturedSanitizeLogs(t *testing.T) {
	block, crypto := replay.Page(t, "sanitize-block-done.bytes", 32), replay.Page(t, "sanitize-crypto-done.bytes", 32)
	never := log(65535, 0, 0)
	for name, c := range map[string]struct {
		method string
		logs   [][]byte
		refuse map[uint8]passthrough.Status
		told   []float64
		sent   []string
		err    string
		unsure bool
	}{
		"block erase to its end, nothing written since": {"nvme-sanitize-block", [][]byte{never, log(3761, 2, 2), log(23297, 2, 2), block}, nil,
			[]float64{3761. / 65536, 23297. / 65536, 1}, []string{"84 ns 0 cdw10 0x2"}, "", false},
		"crypto erase to its end, with flags in dword 10": {"nvme-sanitize-crypto", [][]byte{never, crypto}, nil, []float64{1}, []string{"84 ns 0 cdw10 0x4"}, "", false},
		"done and written to since":                       {"nvme-sanitize-crypto", [][]byte{never, log(65535, 1, 4)}, nil, []float64{1}, []string{"84 ns 0 cdw10 0x4"}, "", false},
		"log of an earlier block erase":                   {"nvme-sanitize-crypto", [][]byte{block}, nil, nil, []string{"84 ns 0 cdw10 0x4"}, "about another one", true},
		"Intel 660p, 1 % for a week":                      {"nvme-sanitize-block", [][]byte{never, log(655, 2, 2)}, nil, nil, []string{"84 ns 0 cdw10 0x2"}, "stayed at 1 % for 2h0m0s", true},
		"Intel 660p, still at it from before":             {"nvme-sanitize-block", [][]byte{log(655, 2, 2)}, nil, nil, nil, "leave it powered and wipe again later", true},
		"WD SN730, locked":                                {"nvme-sanitize-block", [][]byte{never}, map[uint8]passthrough.Status{opSanitize: 0x4286}, nil, nil, "revert it with the PSID on its label", false},
	} {
		d := &drive{identify: fields(0x10300, 0x17, 0x3, 1, 0), active: 1, logs: c.logs, refuse: c.refuse}
		told, err := run(t, nvmeLadder(d, atOnce), c.method)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || errors.Is(err, ErrUnsure) != c.unsure {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(d.sent, c.sent) || c.told != nil && !slices.Equal(told, c.told) {
			t.Errorf("%s: told %v, sent %v", name, told, d.sent)
		}
	}
}

// A drive that says how long it takes is waited for longer (written from the specification: the captured ones do not say).
func TestSanitizeEstimate(t *testing.T) {
	l := parseSanitizeLog(append(log(0, 2, 2)[:12], 0x10, 0x0e, 0, 0, 0xff, 0xff, 0xff, 0xff))
	if l.estimate.String() != "1h0m0s" || l.action != sanitizeBlock {
		t.Errorf("%+v", l)
	}
	if l := parseSanitizeLog(append(log(0, 2, 0x13)[:8], 0x20, 0x1c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)); l.estimate.String() != "2h0m0s" || l.action != sanitizeOverwrite {
		t.Errorf("%+v", l)
	}
	if l := parseSanitizeLog(log(65535, 0x101, 2)); l.estimate != 0 || l.state != sanitizeDone {
		t.Errorf("%+v", l)
	}
}

// The statuses are captured; the drive that gives them is here always the ADATA.
func TestCapturedFormatRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status passthrough.Status
		want   string
	}{
		"Samsung MZVKV512HAJH":      {0x2001, "the drive does not know the command (NVMe status 0x2001)"},
		"one that says it can":      {0x6001, "the drive does not know the command (NVMe status 0x6001)"},
		"one without secure erase":  {0x410a, "the drive does not take the format (NVMe status 0x410a)"},
		"a Dell's":                  {0x210a, "the drive does not take the format (NVMe status 0x210a)"},
		"ADATA SX8000NP":            {0x200c, "the drive wants other commands before this one (NVMe status 0x200c)"},
		"a worn one, gone readonly": {0x2020, "the namespace is write-protected (NVMe status 0x2020)"},
	} {
		d := &drive{identify: fields(0x10200, 0x17, 0, 1, 0x1), active: 1, refuse: map[uint8]passthrough.Status{opFormat: c.status}}
		if _, err := run(t, nvmeLadder(d, atOnce), "nvme-format-user-data"); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
