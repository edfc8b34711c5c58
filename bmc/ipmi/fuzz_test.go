package ipmi

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/better-compute/bcd/plugins/driver"
)

// fit checks that a text may be shown to a person.
func fit(t testing.TB, what, s string, limit int) {
	t.Helper()
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > limit+1 || strings.ContainsFunc(s, unicode.IsControl) {
		t.Errorf("%s is %q", what, s)
	}
}

// parseAll puts a text through every parser and checks what must hold of any result.
func parseAll(t testing.TB, text string) {
	t.Helper()
	f := parseFRU(text)
	b := f.board()
	for _, s := range []string{f.manufacturer(), f.model(), f.serial(), b.Manufacturer, b.Product, b.Serial} {
		fit(t, "a FRU field", s, 128)
	}
	if guid := parseGUID(text); guid != "" && (len(guid) != 36 || guid != strings.ToLower(guid) || !guidRE.MatchString(guid)) {
		t.Errorf("the GUID is %q", guid)
	}
	m := parseMC(text)
	fit(t, "the BMC's maker", m.maker, 140)
	fit(t, "the BMC's firmware", m.firmware, 128)
	mac, ip := parseLAN(text)
	if mac != "" && len(mac) != 17 || len(ip) > 45 {
		t.Errorf("the BMC's addresses are %q and %q", mac, ip)
	}
	s := parseSensors(text)
	if s.OK > s.Count || s.Count > maxSensors || len(s.Problems) > maxProblems {
		t.Errorf("the sensors are %+v", s)
	}
	for _, p := range s.Problems {
		fit(t, "a sensor", p, 64)
	}
	if n := parseRecordCount(text); n < 0 || n > 65535 {
		t.Errorf("%d records", n)
	}
	p := parsePower(text)
	fit(t, "the power", p.Reason, 120)
	if (p.Power == driver.PowerUnknown) != (p.Reason != "") {
		t.Errorf("the power is %+v", p)
	}
	if flags, ok := parseBootFlags(text); ok {
		fit(t, "the boot flags", flags.String(), 60)
	}
	l := &login{password: "hunter2-secret", user: "admin"}
	fit(t, "the first line", l.firstLine(answer{stdout: text, exit: 1}), 240)
	if strings.Contains(l.firstLine(answer{stderr: text}), l.password) {
		t.Error("the first line holds the password")
	}
	if e := l.fault(words("x"), answer{stderr: text, exit: 1}); e.Code == "" || e.Message == "" {
		t.Errorf("the fault is %+v", e)
	}
	if e := l.sessionFault(text); e != nil && e.Message == "" {
		t.Errorf("the fault is %+v", e)
	}
}

func seeds(f *testing.F, more ...string) {
	for _, s := range append(more, "", "Chassis Power is on\n", "System GUID : 4C4C4544-0042-3010-8031-C7C04F313233\n", "a : b\r\n", "x | y | ok\n", "\x1b[31m\xff\x00\u202e : | \n") {
		f.Add(s)
	}
}

func FuzzFRU(f *testing.F) {
	seeds(f, " Product Name          : Name\r\nFake Key : injected\n Board Serial          : \x1b[0m\n", "FRU Device Description : A (ID 0)\n Product Name : x\n\nFRU Device Description : B (ID 1)\n")
	f.Fuzz(func(t *testing.T, text string) { parseAll(t, text) })
}

func FuzzBootFlags(f *testing.F) {
	seeds(f, bootParam(0xe0, 8), "Boot parameter data: e0\n", "Boot parameter 5 is invalid/locked\nBoot parameter data: a004000000\n")
	f.Fuzz(func(t *testing.T, text string) {
		flags, ok := parseBootFlags(text)
		if !ok && flags != (bootFlags{}) {
			t.Errorf("unread flags are %+v", flags)
		}
		if ok && flags.code > 15 {
			t.Errorf("device %d", flags.code)
		}
		fit(t, "the flags", flags.String(), 60)
	})
}

func FuzzSensors(f *testing.F) {
	seeds(f, "CPU1 Temp        | 41 degrees C      | ok\n", "A|B|C|nr\n", "Record Count : 6\n")
	f.Fuzz(func(t *testing.T, text string) { parseAll(t, text) })
}

func FuzzGUID(f *testing.F) {
	seeds(f, "System GUID   : C2A9B0F13E7D554AB7AA0123456789AB\n", "System GUID  : {00000000-0000-0000-0000-000000000000}\n")
	f.Fuzz(func(t *testing.T, text string) {
		guid := parseGUID("System GUID : " + text)
		if guid != "" && (!guidRE.MatchString(guid) || len(guid) != 36 || noGUIDs[guid]) {
			t.Errorf("%q reads as %q", text, guid)
		}
	})
}

func FuzzLoginFault(f *testing.F) {
	seeds(f, "> RAKP 2 HMAC is invalid\nError: "+noSession, "hunter2-secret", "Set Session Privilege Level to ADMINISTRATOR failed: Unknown (0x81)\n")
	f.Fuzz(func(t *testing.T, text string) { parseAll(t, text) })
}

func FuzzAddress(f *testing.F) {
	seeds(f, "192.0.2.5:623", "ipmi://[2001:db8::1]:7", "fe80::1%eth0", "bmc.example.com")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			return
		}
		if strings.HasPrefix(a.host, "-") || strings.ContainsFunc(a.host+a.port, func(r rune) bool { return r <= ' ' || r > '~' }) || a.host == "" || a.port == "" {
			t.Errorf("%q is taken for %q", text, a)
		}
		if again, err := parseAddress(a.String()); err != nil || again != a {
			t.Errorf("%q is %q, and that is %q (%v)", text, a, again, err)
		}
	})
}

func FuzzEscaper(f *testing.F) {
	f.Add([]byte("\r\xff."), 1)
	f.Fuzz(func(t *testing.T, typed []byte, cut int) {
		if cut < 0 || cut > len(typed) {
			cut = 0
		}
		e := escaper{lineStart: true}
		sent := append(e.encode(typed[:cut]), e.encode(typed[cut:])...)
		if got := ipmitoolReads(t, sent); string(got) != string(typed) {
			t.Errorf("%q was sent as %q, and ipmitool makes %q of it", typed, sent, got)
		}
	})
}

// ipmitoolReads is how ipmitool takes what is typed into its console.
func ipmitoolReads(t *testing.T, sent []byte) []byte {
	var out []byte
	pending, lineStart := false, true
	for _, b := range sent {
		switch {
		case pending && b != solEscape:
			t.Fatalf("%q holds a command to ipmitool", sent)
		case !pending && lineStart && b == solEscape:
			pending = true
			continue
		}
		pending = false
		out = append(out, b)
		lineStart = b == '\r' || b == '\n'
	}
	if pending {
		t.Fatalf("%q ends within a command to ipmitool", sent)
	}
	return out
}
