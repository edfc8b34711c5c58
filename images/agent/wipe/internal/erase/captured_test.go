package erase

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
)

// The tests of this file run on what real drives said; their sources stand in
// images/agent/internal/passthrough/replay/captured/README.md.

// page is a captured page of an ATA disk in hex, with words put over it as tools printed them of other disks.
func page(t *testing.T, name string, over map[int]uint16) string {
	t.Helper()
	b := replay.Page(t, name+".words", 512)
	for word, v := range over {
		binary.LittleEndian.PutUint16(b[2*word:], v)
	}
	b[511] = 0
	sum := byte(0)
	for _, c := range b {
		sum += c
	}
	b[511] = -sum
	return hex.EncodeToString(b)
}

// Sense data as captured: registers of a good command, and a command that a frozen or locked disk aborts (older Linux).
const (
	capturedGood  = "72 01 00 1d 00 00 00 0e 09 0c 00 00 00 01 00 00 00 00 00 00 00 50"
	capturedAbort = "70 00 05 00 00 00 00 0a 04 51 40 01 21 04 00 00 00 00 00"
	capturedNewer = "f0 00 05 04 51 40 80 0a 00 00 00 00 21 04 00 00 00 00 00" // the same by newer Linux
)

var aborted = passthrough.CheckCondition{Key: 5, ASC: 0x21, ASCQ: 4}

func TestCapturedATALadders(t *testing.T) {
	zeros := strings.Repeat("00", 18) // what a SAS3008 sent for registers
	for name, c := range map[string]struct {
		page  string
		over  map[int]uint16
		rest  []step
		names []string
		notes []string // each of them, in part
	}{
		"Samsung 870 QVO, frozen by a ThinkPad": {"ata-samsung-870qvo", nil, nil, nil, []string{"the firmware froze the disk's security"}},
		"Samsung 850 EVO":                       {"ata-samsung-850evo", nil, nil, []string{"ata-security-erase-enhanced", "ata-security-erase"}, nil},
		"WD 28 TB, sanitize by overwriting": {"ata-wd-hs7282", nil, []step{{askSanitize, "", left(good, 0, 0xffff), nil}},
			[]string{"ata-sanitize-overwrite", "ata-security-erase"}, nil},
		"Seagate of 2006":                       {"ata-seagate-st3400633as", nil, nil, []string{"ata-security-erase"}, nil},
		"WD of 2006":                            {"ata-wd-wd4000kd", nil, nil, []string{"ata-security-erase"}, nil},
		"Maxtor whose firmware has no security": {"ata-maxtor-6b200m0", nil, nil, nil, []string{"no ATA security feature set"}},
		"Seagate 2 TB, locked by another's password": {"ata-wd-hs7282", map[int]uint16{59: 0x5000, 85: 0x7c6b, 89: 98, 90: 98, 128: 0x27},
			[]step{{security(ataUnlock), "", capturedAbort, aborted}, {askSanitize, "", capturedAbort, aborted}}, nil, []string{"its end would not be seen", "not ours"}},
		"HP S700, sanitize by block erase": {"ata-samsung-850evo", map[int]uint16{59: 0x9101}, []step{{askSanitize, "", left(good, 0, 0xffff), nil}},
			[]string{"ata-sanitize-block", "ata-security-erase-enhanced", "ata-security-erase"}, nil},
		"the same behind a SAS3008": {"ata-samsung-850evo", map[int]uint16{59: 0x9101}, []step{{askSanitize, "", zeros, nil}},
			[]string{"ata-security-erase-enhanced", "ata-security-erase"}, []string{"its end would not be seen"}},
		"behind a WD USB bridge": {"ata-samsung-850evo", map[int]uint16{59: 0x9101}, []step{{askSanitize, "", "f0 00 01 00 50 40 3c 0a 80 00 00 00 00 1d", nil}},
			[]string{"ata-security-erase-enhanced", "ata-security-erase"}, []string{"its end would not be seen"}},
	} {
		p := play(t, append([]step{{askInquiry, inquiryATA, "", nil}, {sendIdentify, page(t, c.page, c.over), "", nil}}, c.rest...)...)
		l := scsiLadder(p, atOnce)
		p.Over()
		said := strings.Join(l.Notes, "\n")
		if !slices.Equal(names(l), c.names) || len(l.Notes) != len(c.notes) {
			t.Errorf("%s: %v, notes %q", name, names(l), l.Notes)
		}
		for _, n := range c.notes {
			if !strings.Contains(said, n) {
				t.Errorf("%s: notes %q without %q", name, l.Notes, n)
			}
		}
	}
}

// What the firmware can freeze, and reasons why SANITIZE STATUS is refused, are written from ACS-4: nobody seems to have
// published such a drive's registers.
func TestATASanitizeBySpecification(t *testing.T) {
	for name, c := range map[string]struct {
		sense string
		err   error
		names []string
		note  string
	}{
		"frozen":              {left(good, countFrozen, 0xffff), nil, nil, "froze the disk's sanitize"},
		"after a failed one":  {"72 0b 00 00 0000000e 090c0104 0000 0001 0000 0000 4051", passthrough.CheckCondition{Key: 0xb}, []string{"ata-sanitize-block"}, ""},
		"unplugged meanwhile": {"", errors.New("host status 0001h"), nil, "host status 0001h"},
	} {
		p := play(t, step{askInquiry, inquiryATA, "", nil}, step{sendIdentify, page(t, "ata-maxtor-6b200m0", map[int]uint16{59: 0x9000}), "", nil},
			step{askSanitize, "", c.sense, c.err})
		l := scsiLadder(p, atOnce)
		if !slices.Equal(names(l), c.names) || !strings.Contains(strings.Join(l.Notes, "\n"), c.note) {
			t.Errorf("%s: %v, notes %q", name, names(l), l.Notes)
		}
	}
	for name, c := range map[string]struct {
		sense string
		err   error
		want  string
		ends  error
	}{
		"some of it is left": {"72 0b 00 00 0000000e 090c0104 0000 0001 0000 0000 4051", passthrough.CheckCondition{Key: 0xb}, "could not be sanitized", nil},
		"no registers":       {"", nil, "does not pass on", ErrUnsure},
		"aborted":            {"72 0b 00 00 0000000e 090c0104 0000 0000 0000 0000 4051", passthrough.CheckCondition{Key: 0xb}, "status 51h", ErrUnsure},
	} {
		p := play(t, step{askInquiry, inquiryATA, "", nil}, step{sendIdentify, page(t, "ata-maxtor-6b200m0", map[int]uint16{59: 0x9000}), "", nil},
			step{askSanitize, "", left(good, countDone, 0xffff), nil},
			step{"85 07 20 00 12 00 00 42 72 00 45 00 6b 40 b4 00", "", left(good, 0, 0), nil}, step{askSanitize, "", c.sense, c.err})
		_, err := run(t, scsiLadder(p, atOnce), "ata-sanitize-block")
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnsure) != (c.ends != nil) {
			t.Errorf("%s: %v", name, err)
		}
		p.Over()
	}
}

// How long captured drives say that they take, and the commands of an erase to its end, byte for byte. The refusals are captured,
// their places in the sequence are not.
func TestCapturedSecureErase(t *testing.T) {
	for name, c := range map[string]struct {
		page     string
		word     int
		want     time.Duration
		over     map[int]uint16
		whatSays string
	}{
		"Samsung 850 EVO":           {"ata-samsung-850evo", identifyEraseTime, 2 * time.Minute, nil, "2min"},
		"Samsung 850 EVO, enhanced": {"ata-samsung-850evo", identifyEnhanced, 8 * time.Minute, nil, "8min"},
		"WD 28 TB, 15 bits":         {"ata-wd-hs7282", identifyEraseTime, 2716 * time.Minute, nil, "0x854e"},
		"Seagate 400 GB, not said":  {"ata-seagate-st3400633as", identifyEraseTime, 4 * time.Hour, nil, "0"},
		"Seagate 2 TB":              {"ata-wd-hs7282", identifyEraseTime, 3*time.Hour + 16*time.Minute, map[int]uint16{89: 98}, "3 hours 16 minutes"},
		"more than 508min, 28 TB":   {"ata-wd-hs7282", identifyEraseTime, 77*time.Hour + 47*time.Minute, map[int]uint16{89: 255}, "more than 508min"},
	} {
		id, err := passthrough.ParseIdentity(unhex(t, page(t, c.page, c.over)))
		if got := eraseTime(id[c.word], id.Bytes()); err != nil || got != c.want {
			t.Errorf("%s says %s: taken for %s, %v", name, c.whatSays, got, err)
		}
	}

	secret := hex.EncodeToString([]byte(ataPassword))
	identify := page(t, "ata-samsung-850evo", nil)
	erase := []step{
		{"85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f1 00", "0000" + secret, "", nil},
		{"85 06 20 00 00 00 00 00 00 00 00 00 00 40 f3 00", "", capturedGood, nil},
		{"85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f4 00", "0200" + secret, "", nil},
		{"85 08 0e 00 00 00 01 00 00 00 00 00 00 40 ec 00", identify, "", nil},
	}
	disable := "85 0a 06 00 00 00 01 00 00 00 00 00 00 40 f6 00"
	refused := func(n int) []step { // the n-th command is aborted, as captured
		steps := slices.Clone(erase[:n+1])
		steps[n].Sense, steps[n].Err = capturedAbort, aborted
		return steps
	}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"to its end":                     {erase, ""},
		"frozen after all":               {refused(0), "setting the erase password: the disk aborted the ATA command (SCSI sense 5/21/04)"},
		"frozen after all, newer Linux":  {[]step{{erase[0].CDB, "0000" + secret, capturedNewer, aborted}}, "setting the erase password: the disk aborted the command (ATA command f1h: status 51h, error 04h)"},
		"aborted, password off":          {append(refused(2), step{disable, "0000" + secret, "", nil}), "erasing: the disk aborted the ATA command (SCSI sense 5/21/04)"},
		"aborted, password cannot go":    {append(refused(2), step{disable, "", capturedAbort, aborted}), `may be left with the password "bcd-wipe"`},
		"bridge swallows what was wrong": {append(slices.Clone(erase[:2]), step{erase[2].CDB, "", "", errors.New("the command failed, and nothing says why")}, step{disable, "", "", nil}), "nothing says why"},
	} {
		p := play(t, append([]step{{askInquiry, inquiryATA, "", nil}, {sendIdentify, identify, "", nil}}, c.steps...)...)
		_, err := run(t, scsiLadder(p, wait), "ata-security-erase-enhanced")
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v", name, err)
		}
		p.Over()
	}
}

// A disk that says for ever that it is at one place is left after two hours, whatever its protocol.
func TestStandstill(t *testing.T) {
	p := play(t)
	n := int(patience/poll) + 1
	for range n {
		p.Steps = append(p.Steps, replay.Step{CDB: askSense, Data: inProgress})
	}
	p.Steps = append([]replay.Step{{CDB: askInquiry, Data: inquirySAS}, {CDB: askCrypto, Data: "0003"}, {CDB: askBlock, Data: "0001"}, {CDB: askOverwrite, Data: "0001"}, {CDB: "48830000000000000000"}}, append(p.Steps, replay.Step{CDB: askSense, Data: inProgress})...)
	if told, err := run(t, scsiLadder(p, atOnce), "scsi-sanitize-crypto"); !errors.Is(err, ErrUnsure) || !strings.Contains(fmt.Sprint(err), "stayed at 50 % for 2h0m0s") {
		t.Errorf("%d polls: %v", len(told), err)
	}
}

// A SAS disk's commands as sg_opcodes printed them. The bytes of that list, and the sense data while it sanitizes itself, are
// written from SPC-5: nobody seems to have published them.
func TestCapturedSCSI(t *testing.T) {
	seagate := []step{{askInquiry, "00 00 06 02 5b 00 00 12 53 45 41 47 41 54 45 20 53 54 31 30 30 30 30 4e 4d 30 32 32 36 20 20 20 4b 54 30 31", "", nil},
		{askCrypto, "0003", "", nil}, {askBlock, "0001", "", nil}, {askOverwrite, "0003", "", nil}} // ST10000NM0226: 48,1 and 48,3 and 48,1f, no 48,2
	for name, c := range map[string]struct {
		steps []step
		told  []float64
		err   error
	}{
		"news of a reset first": {[]step{{"48830000000000000000", "", "", nil}, {askSense, "70000600 0000000a 00000000 2900", "", nil}, {askSense, inProgress, "", nil}, {askSense, "72000000 00000000", "", nil}},
			[]float64{0, 0.5, 1}, nil},
		"progress without an error": {[]step{{"48830000000000000000", "", "", nil}, {askSense, "7200041b 00000008 0206 0000 80 c000 00", "", nil}, {askSense, "70000000 0000000a", "", nil}},
			[]float64{0.75, 1}, nil},
		"a warning at its end": {[]step{{"48830000000000000000", "", "", nil}, {askSense, "70000100 0000000a 00000000 0b01", "", nil}}, []float64{1}, nil},
		"stands still":         {[]step{{"48830000000000000000", "", "", nil}, {askSense, "70000200 0000000a 00000000 0402", "", nil}}, nil, passthrough.CheckCondition{Key: 2, ASC: 4, ASCQ: 2}},
	} {
		p := play(t, slices.Concat(seagate, c.steps)...)
		told, err := run(t, scsiLadder(p, atOnce), "scsi-sanitize-crypto")
		if !slices.Equal(told, c.told) || !errors.Is(err, c.err) {
			t.Errorf("%s: told %v, error %v", name, told, err)
		}
		p.Over()
	}
}
