package commission

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// The tests of this file run on what real drives said; their sources stand in
// images/agent/internal/passthrough/replay/captured/README.md.

// Whole pages, and the Samsung one with the values over it that were printed of other drives.
func TestCapturedNVMeHealth(t *testing.T) {
	samsung := replay.Page(t, "health-samsung-mzvlb256.bytes", nvmeHealthLen)
	over := func(at int, b ...byte) []byte {
		page := append([]byte(nil), samsung...)
		copy(page[at:], b)
		return page
	}
	for name, c := range map[string]struct {
		page []byte
		want string // "" passes
		says []string
	}{
		"Samsung MZVLB256": {samsung, "", []string{"temperature 31", "spare blocks 100", "life used up 3", "powered on 2331", "power cut without warning 96", "written 13.912"}},
		"a Google server's": {replay.Page(t, "health-google-ecclesia.bytes", nvmeHealthLen), "",
			[]string{"temperature 41", "spare blocks 98", "life used up 0", "powered on 408", "power cut without warning 1"}},
		"Samsung MZVL2512HCJQ, worn out":                    {over(0, 0x04, 0x2d, 0x01, 100, 10, 100), "by errors or because it is worn out", nil},
		"Samsung 980 PRO, least spare that means nothing":   {over(3, 64, 255, 3), "", []string{"spare blocks 64"}},
		"Samsung 980 PRO, as it came: life of 255 per cent": {over(3, 64, 255, 255), "life used up: 255 %", nil},
	} {
		health := func(string, agentv1.Disk) (Health, error) { return nvmeHealth(log{page: c.page}) }
		r := ask(t, Config{Disks: disks(agentv1.Disk{Name: "nvme0n1", Bytes: 1, Transport: "nvme"}), Health: health}, agentv1.Test{Test: "smart"})
		result := agentv1.TestPassed
		if c.want != "" {
			result = agentv1.TestFailed
		}
		outcomeIs(t, r, result, c.want)
		h, err := parseNVMe(c.page)
		if err != nil || strings.Contains(strings.Join(h.Faults, "; "), "spare") {
			t.Errorf("%s: %q, %v", name, h.Faults, err)
		}
		for _, want := range c.says {
			if said := values(h); !strings.Contains(said, want) {
				t.Errorf("%s: %s lacks %s", name, said, want)
			}
		}
	}
}

func values(h Health) string {
	var out []string
	for _, v := range h.Values {
		out = append(out, fmt.Sprintf("%s %.8g", v.Name, v.Value))
	}
	return strings.Join(out, ", ")
}

func TestCapturedATAHealth(t *testing.T) {
	qvo, evo := hex.EncodeToString(replay.Page(t, "ata-samsung-870qvo.words", 512)), hex.EncodeToString(replay.Page(t, "ata-samsung-850evo.words", 512))
	data := hex.EncodeToString(replay.Page(t, "smart-samsung-870qvo.bytes", 512))
	// The raw values are as smartctl printed them, the rest of the rows is made.
	fujitsu := smartData("05 3300 64 64 00000000d007", "09 3200 63 63 d6b500000000", "c2 2200 64 64 2400 09003500", "c5 3200 64 64 02002215dc6d", "c6 3200 64 64 03001382 0e1b")
	seagate := smartData("09 3200 36 36 779d0000b534")
	carries := passthrough.CheckCondition{Key: 1, ASCQ: 0x1d}
	for name, c := range map[string]struct {
		identify string
		rest     []exchange
		faults   string
		says     string
		err      string
	}{
		"Samsung 870 QVO, temperature in 190": {qvo, []exchange{{sendStatus, "", registers("4f", "c2"), carries}, {sendData, data, "", nil}}, "", "replaced sectors 0, powered on 1379, temperature 29", ""},
		"Fujitsu MHY2120BH, values packed": {evo, []exchange{{sendStatus, "", registers("4f", "c2"), carries}, {sendData, fujitsu, "", nil}}, "",
			"replaced sectors 0, powered on 46550, temperature 36, unreadable sectors 2, uncorrectable sectors 3", ""},
		"Seagate, hours packed": {evo, []exchange{{sendStatus, "", registers("4f", "c2"), carries}, {sendData, seagate, "", nil}}, "", "powered on 40311", ""},
		// The form as a WD USB bridge was captured using it, the registers as ACS-4 has them.
		"behind a WD USB bridge, well":    {evo, []exchange{{sendStatus, "", "f0 00 01 00 50 40 00 0a 00 00 4f c2 00 1d", carries}, {sendData, seagate, "", nil}}, "", "powered on 40311", ""},
		"behind a WD USB bridge, failing": {evo, []exchange{{sendStatus, "", "f0 00 01 00 50 40 00 0a 00 00 f4 2c 00 1d", carries}, {sendData, "", "", carries}}, "predicts its failure", "", ""},
		"failing, as Linux passed it on":  {evo, []exchange{{sendStatus, "", "72 01 04 1d 00 00 00 0e 09 0c 00 00 00 00 00 00 00 f4 00 2c 40 50", passthrough.CheckCondition{Key: 1, ASC: 4, ASCQ: 0x1d}}, {sendData, "", "", carries}}, "SMART threshold exceeded", "", ""},
		"a USB dock's status of zero":     {evo, []exchange{{sendStatus, "", "72 00 00 00 00 00 00 0a 09 0c 00 00 00 01 00 00 00 00 00 00 00 00", nil}}, "", "", "does not pass on"},
		"refused with other bytes left":   {evo, []exchange{{sendStatus, "", "f0 00 05 00 00 00 00 0a 00 aa 55 40 20 00", passthrough.CheckCondition{Key: 5, ASC: 0x20}}}, "", "", "does not pass on"},
		"Samsung PM881, no descriptor":    {evo, []exchange{{sendStatus, "", "", nil}}, "", "", "does not pass on"},
		"a USB bridge that refuses":       {evo, []exchange{{sendStatus, "", "70 00 05 00 00 00 00 0a 00 00 00 00 24 00", passthrough.CheckCondition{Key: 5, ASC: 0x24}}}, "", "", "does not pass on"},
		"SMART aborted by the disk":       {evo, []exchange{{sendStatus, "", "70 00 05 00 00 00 00 0a 04 51 40 01 21 04", passthrough.CheckCondition{Key: 5, ASC: 0x21, ASCQ: 4}}}, "", "", "SMART status"},
		"a page of ones":                  {strings.Repeat("ff", 512), nil, "", "", "not an ATA disk's"},
	} {
		p := play(t, append([]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, c.identify, "", nil}}, c.rest...)...)
		h, err := scsiHealth(p)
		p.Over()
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(h.Faults, "; "); err == nil && (values(h) != c.says || !strings.Contains(got, c.faults) || c.faults == "" && got != "") {
			t.Errorf("%s: faults %q, %s", name, got, values(h))
		}
	}
}
