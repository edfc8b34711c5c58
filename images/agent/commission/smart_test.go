package commission

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	"github.com/better-compute/bcd/images/agent/internal/passthrough/replay"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// nvmeLog is the SMART log of a drive in good health, with what differs put over it, by offset.
func nvmeLog(over map[int]string) []byte {
	b := make([]byte, nvmeHealthLen)
	for at, text := range map[int]string{
		0: "00 3601 64 0a 03", 32: "d2 04 2c", 48: "00 e1 f5 05", 112: "2c 01", 128: "10 27", 144: "05", 192: "00 00 00 00 00 00 00 00 36 01",
	} {
		put(b, at, text)
	}
	for at, text := range over {
		put(b, at, text)
	}
	return b
}

func put(b []byte, at int, text string) {
	raw, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	copy(b[at:], raw)
}

func TestNVMeHealth(t *testing.T) {
	for name, c := range map[string]struct {
		over map[int]string
		with map[string]float64
		want string // "" passes
	}{
		"good":                   {nil, nil, ""},
		"spare low":              {map[int]string{0: "01"}, nil, "spare blocks have run low"},
		"spare below least":      {map[int]string{3: "09"}, nil, "spare blocks have run low"},
		"worn and hot":           {map[int]string{0: "06"}, nil, "too hot or too cold; nvme0n1: its reliability"},
		"read-only":              {map[int]string{0: "08"}, nil, "read-only"},
		"used up":                {map[int]string{5: "65"}, nil, "life used up: 101 %, at most 100"},
		"used up, let":           {map[int]string{5: "ff"}, map[string]float64{"maxUsed": 255}, ""},
		"lost data":              {map[int]string{160: "02"}, nil, ""},
		"lost data, judged":      {map[int]string{160: "02"}, map[string]float64{"maxMediaErrors": 0}, "lost data: 2 errors, at most 0"},
		"hot, judged":            {map[int]string{1: "5701"}, map[string]float64{"maxTemperature": 65}, "temperature: 70 °C"},
		"counters at their ends": {map[int]string{128: "ffffffffffffffffffffffffffffffff", 48: "ffffffffffffffffffffffffffffffff"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			health := func(string, agentv1.Disk) (Health, error) { return nvmeHealth(log{page: nvmeLog(c.over)}) }
			r := ask(t, Config{Disks: disks(agentv1.Disk{Name: "nvme0n1", Bytes: 1, Transport: "nvme"}), Health: health}, agentv1.Test{Test: "smart", With: c.with})
			result := agentv1.TestPassed
			if c.want != "" {
				result = agentv1.TestFailed
			}
			outcomeIs(t, r, result, c.want)
		})
	}
	h, err := parseNVMe(nvmeLog(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"temperature": 37, "spare blocks": 100, "life used up": 3, "powered on": 10000, "power cut without warning": 5, "written": 51.2, "lost data": 0}
	for _, v := range h.Values {
		if w, ok := want[v.Name]; !ok || w != v.Value {
			t.Errorf("%+v, not %v", v, w)
		}
	}
	if len(h.Values) != len(want) {
		t.Errorf("%+v", h.Values)
	}
}

// log answers Get Log Page.
type log struct {
	page []byte
	err  error
}

func (log) Namespace() (uint32, error) { return 1, nil }

func (l log) Do(a passthrough.Admin) error {
	if a.Opcode != 0x02 || a.NSID != 0xffffffff || a.CDW[0] != 0x007f0002 {
		return fmt.Errorf("asked %+v", a)
	}
	copy(a.Data, l.page)
	return l.err
}

// exchange is one command of a trace: what was sent, and what the disk answered.
type exchange struct {
	CDB, Data, Sense string // hex
	Err              error
}

// play makes a disk that takes the commands of its steps.
func play(t *testing.T, steps ...exchange) *replay.Trace {
	p := &replay.Trace{TB: t}
	for _, s := range steps {
		p.Steps = append(p.Steps, replay.Step(s))
	}
	return p
}

const (
	sendInquiry  = "12 00 00 00 60 00"
	sendLog      = "4d 00 6f 00 00 00 00 00 40 00"
	sendSense    = "03 00 00 00 fc 00"
	sendIdentify = "85 08 0e 00 00 00 01 00 00 00 00 00 00 40 ec 00"
	sendStatus   = "85 06 20 00 da 00 00 00 00 00 4f 00 c2 40 b0 00"
	sendData     = "85 08 0e 00 d0 00 01 00 00 00 4f 00 c2 40 b0 00"

	isSCSI = "0000 05 02 5b 000000 5345414741544520"
	isATA  = "0000 05 02 5b 000000 4154412020202020"
)

// registers is the sense data in which a command's LBA comes back.
func registers(mid, high string) string {
	return "72 01 00 1d 00 00 00 0e 09 0c 00 00 00 00 00 00 00" + mid + "00" + high + "00 50"
}

// words makes the data of IDENTIFY DEVICE.
func words(supported, on uint16) string {
	b := make([]byte, 512)
	for word, v := range map[int]uint16{0: 0x0040, 82: supported, 83: 0x4000, 85: on, 87: 0x4000} {
		binary.LittleEndian.PutUint16(b[2*word:], v)
	}
	return hex.EncodeToString(b)
}

// smartData makes a table of attributes, with the sum that makes it valid.
func smartData(rows ...string) string {
	b := make([]byte, 512)
	b[0] = 16
	for i, r := range rows {
		put(b, 2+12*i, r)
	}
	sum := byte(0)
	for _, c := range b {
		sum += c
	}
	b[511] = -sum
	return hex.EncodeToString(b)
}

func TestSCSIHealth(t *testing.T) {
	illegal := passthrough.CheckCondition{Key: 5, ASC: 0x20}
	carries := passthrough.CheckCondition{Key: 1, ASCQ: 0x1d}
	table := smartData("05 3300 64 64 0200 00000000", "09 3200 5f 5f 102700 003c00", "c2 2200 24 32 2400 1a003200", "c5 1200 64 64 0800 00000000", "ab 3200 64 64 ffffffffffff")
	for name, c := range map[string]struct {
		steps  []exchange
		faults string
		values string
		err    string
	}{
		"SAS, well":         {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "2f00 0008 0000 0304 00 00 1f 41", "", nil}}, "", "temperature 31", ""},
		"SAS, failing":      {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "2f00 0008 0000 0304 5d 10 ff 41", "", nil}}, "predicts its failure (5d/10)", "", ""},
		"SAS, warning":      {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "2f00 0008 0000 0304 0b 01 46 41", "", nil}}, "warns (0b/01)", "temperature 70", ""},
		"SAS, another page": {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "0d00 0008 0000 0304 00 00 1f 41", "", nil}}, "", "", "cannot be read"},
		"SAS, cut off":      {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "2f00 0003 0000 03", "", nil}}, "", "", "none of its parameters"},
		"no log":            {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "", "", illegal}, {sendSense, "70000000 0000000a", "", nil}}, "", "", "keeps no log"},
		"no log, failing":   {[]exchange{{sendInquiry, isSCSI, "", nil}, {sendLog, "", "", illegal}, {sendSense, "70000100 0000000a 00000000 5d00", "", nil}}, "predicts its failure (5d/00)", "", ""},
		"dumb":              {[]exchange{{sendInquiry, "", "", errors.New("inappropriate ioctl")}}, "", "", "inappropriate ioctl"},
		"SATA, well": {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(1, 1), "", nil}, {sendStatus, "", registers("4f", "c2"), carries}, {sendData, table, "", nil}},
			"", "replaced sectors 2, powered on 10000, temperature 36, unreadable sectors 8", ""},
		"SATA, failing": {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(1, 1), "", nil}, {sendStatus, "", registers("f4", "2c"), carries}, {sendData, "", "", errors.New("no")}},
			"SMART threshold exceeded", "", ""},
		"SATA, sum wrong":             {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(1, 1), "", nil}, {sendStatus, "", registers("4f", "c2"), carries}, {sendData, "ff" + table[2:], "", nil}}, "", "", ""},
		"SATA, controller in between": {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(1, 1), "", nil}, {sendStatus, "", "", nil}}, "", "", "does not pass on"},
		"SATA, refused":               {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(1, 1), "", nil}, {sendStatus, "", "", passthrough.CheckCondition{Key: 0xb}}}, "", "", "SMART status"},
		"SATA, turned off":            {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(1, 0), "", nil}}, "", "", "turned off"},
		"SATA, without":               {[]exchange{{sendInquiry, isATA, "", nil}, {sendIdentify, words(0, 0), "", nil}}, "", "", "no SMART"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, c.steps...)
			h, err := scsiHealth(p)
			p.Over()
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("%v, not %q", err, c.err)
			}
			var values []string
			for _, v := range h.Values {
				values = append(values, fmt.Sprintf("%s %g", v.Name, v.Value))
			}
			if got := strings.Join(h.Faults, "; "); err == nil && (!strings.Contains(got, c.faults) || c.faults == "" && got != "" || strings.Join(values, ", ") != c.values) {
				t.Errorf("%s; %s", got, values)
			}
		})
	}
}

// A disk that cannot tell is no healthy one; one that should and does not is a failing one.
func TestSMARTIsHonest(t *testing.T) {
	vda, sda := agentv1.Disk{Name: "vda", Bytes: 1, Transport: "virtio"}, agentv1.Disk{Name: "sda", Bytes: 1, Transport: "sata"}
	r := ask(t, Config{Disks: disks(vda)}, agentv1.Test{Test: "smart"})
	outcomeIs(t, r, agentv1.TestNotRun, "vda: a virtio disk has no command for its health")
	r = ask(t, Config{Disks: disks(vda, sda), Dev: t.TempDir()}, agentv1.Test{Test: "smart"})
	outcomeIs(t, r, agentv1.TestFailed, "sda does not tell its health")
	if len(r.Skipped) != 1 {
		t.Errorf("skipped %q", r.Skipped)
	}
	r = ask(t, Config{}, agentv1.Test{Test: "smart"})
	outcomeIs(t, r, agentv1.TestNotRun, "no fixed disk")
}

func FuzzHealth(f *testing.F) {
	f.Add(nvmeLog(nil))
	put := func(s string) { b, _ := hex.DecodeString(strings.ReplaceAll(s, " ", "")); f.Add(b) }
	put("2f00 0008 0000 0304 00 00 1f 41")
	put(smartData("05 3300 64 64 0200 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (Health, error){parseNVMe, parseExceptions, func(b []byte) (h Health, _ error) { h.attributes(b); return h, nil }} {
			h, _ := parse(b)
			for _, v := range h.Values {
				if v.Value < -300 || v.Name == "" {
					t.Errorf("%+v", v)
				}
			}
			if len(h.Values) > 16 || len(h.Faults) > 16 {
				t.Errorf("%+v", h)
			}
		}
	})
}
