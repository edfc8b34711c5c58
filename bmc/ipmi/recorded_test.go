package ipmi

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/plugins/driver"
)

// recording is the output of one run of ipmitool: on a real machine, or of a real ipmitool against a BMC that answers as
// bug reports describe.
type recording struct {
	name, command string
	answer
	known bool // the exit status
}

// recordings reads the data set that BCD_IPMI_DATA names: SOURCES.tsv and a file for each stream of each run, whose first
// line is a comment.
func recordings(t testing.TB) map[string]*recording {
	t.Helper()
	dir := os.Getenv("BCD_IPMI_DATA")
	if dir == "" {
		t.Skip("left out: BCD_IPMI_DATA names no directory of recorded outputs of ipmitool")
	}
	index, err := os.ReadFile(filepath.Join(dir, "SOURCES.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*recording{}
	for line := range strings.Lines(string(index)) {
		cells := strings.Split(line, "\t")
		if len(cells) < 4 || !strings.HasSuffix(cells[0], ".txt") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, cells[0]))
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(raw), "\n")
		name := strings.TrimSuffix(strings.TrimSuffix(cells[0], ".txt"), ".stderr")
		r := all[name]
		if r == nil {
			r = &recording{name: name, command: strings.TrimPrefix(strings.TrimPrefix(cells[1], "ipmitool "), "-I lanplus ")}
			all[name] = r
		}
		if cells[2] == "stderr" {
			r.stderr = text
		} else {
			r.stdout = text
		}
		if status, err := strconv.Atoi(cells[3]); err == nil {
			r.exit, r.known = status, true
			if status < 0 {
				r.signal = "signal " + cells[3]
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("%s holds %d recordings only", dir, len(all))
	}
	return all
}

// TestRecordedOutputs puts every recording through every parser, and those with a known meaning to the test.
func TestRecordedOutputs(t *testing.T) {
	all := recordings(t)
	for _, r := range all {
		parseAll(t, r.stdout+r.stderr)
	}
	get := func(name string) *recording {
		t.Helper()
		r := all[name]
		if r == nil {
			t.Fatalf("there is no recording %s", name)
		}
		return r
	}
	both := func(name string) []*recording { return []*recording{get(name + "--1.8.18"), get(name + "--1.8.19")} }

	t.Run("power", func(t *testing.T) {
		for name, r := range all {
			if r.command != "chassis power status" || !r.known {
				continue
			}
			reading := parsePower(r.stdout)
			if r.failed() != (reading.Power == driver.PowerUnknown) {
				t.Errorf("%s: exit %d reads as %+v", name, r.exit, reading)
			}
		}
	})
	t.Run("FRU", func(t *testing.T) {
		for name, want := range map[string][3]string{
			"rec-fru-smc-h12-blank-is-one-space": {"Supermicro", "H12DSG-Q-CPU6", "S000001X1000001"},
			"rec-fru-smc-x11-literal-NONE":       {"Supermicro", "SYS-2029BT-HNTR", "A000001X9100001"},
			"rec-fru-smc-x10-empty-serial":       {"Supermicro", "X10DRU-i+", "OM158S000001"},
			"rec-fru-control-bytes":              {"ACME", "Name", "S3"},
			"rec-fru-duplicate-extra-keys":       {"HP", "Ethernet 1Gb 4-port 331FLR", "CN00000001"},
			"rec-fru-list-mixed":                 {"ACME", "BOX1", "PSN"},
		} {
			for _, r := range both(name) {
				f := parseFRU(r.stdout)
				if got := [3]string{f.manufacturer(), f.model(), f.serial()}; got != want {
					t.Errorf("%s reads as %q, want %q", r.name, got, want)
				}
				if len(f.again) > 0 {
					t.Errorf("%s: read twice: %q", r.name, f.again)
				}
			}
		}
		if b := parseFRU(get("rec-fru-truncated-area--1.8.18").stdout).board(); b.Serial != "BS" {
			t.Errorf("a cut FRU gives %+v", b)
		}
		if f := parseFRU(get("real-fru-sun-x2200-m2").stdout); !f.empty() {
			t.Errorf("a FRU that is not there gives %+v", f)
		}
		for _, name := range []string{"real-fru-dell-r630", "real-fru-dell-r720", "real-fru-hp-dl360-gen7", "real-fru-hp-dl360-gen8", "real-hp-sl230s-fru", "real-quanta-s210-fru", "real-dell-r540-fru-locale-date-trailing-spaces"} {
			f := parseFRU(get(name).stdout)
			if f.manufacturer() == "" || f.model() == "" || f.serial() == "" {
				t.Errorf("%s: %q %q %q", name, f.manufacturer(), f.model(), f.serial())
			}
		}
	})
	t.Run("GUID", func(t *testing.T) {
		for name, want := range map[string]string{
			"rec-guid-all-zero--1.8.18": "", "rec-guid-all-zero--1.8.19": "", "rec-guid-unsupported--both": "",
			"rec-guid-v1-ipmi-order--1.8.19": "9026e400-c075-11e1-809f-525400aabbcc", "rec-guid-v1-ipmi-order--1.8.18": "00aabbcc-5254-809f-e111-75c000e42690",
			"rec-guid-dell-smbios-order--1.8.19":        "4c4c4544-0042-3010-8031-c7c04f313233",
			"rec-guid-supermicro-00000000-macs--1.8.19": "00000000-0000-0000-0000-0cc47aaabbcc",
			"rec-guid-v4-dump--1.8.19":                  "c2a9b0f1-3e7d-554a-b7aa-0123456789ab",
		} {
			if got := parseGUID(get(name).stdout); got != want {
				t.Errorf("%s reads as %q, want %q", name, got, want)
			}
		}
	})
	t.Run("BMC", func(t *testing.T) {
		for name, r := range all {
			if r.command == "mc info" && r.known && !r.failed() {
				if mc := parseMC(r.stdout); mc.firmware == "" || mc.makerID == "" && !strings.Contains(name, "zero-ids") {
					t.Errorf("%s reads as %+v", name, mc)
				}
			}
			if strings.HasPrefix(r.command, "lan print") && r.stdout != "" {
				mac, _ := parseLAN(r.stdout)
				if none := strings.Contains(name, "unused") || strings.Contains(name, "openipmi-sim"); none != (mac == "") {
					t.Errorf("%s gives the MAC %q", name, mac)
				}
			}
		}
		for _, name := range []string{"rec-mcinfo-dell-idrac9--1.8.18", "rec-mcinfo-dell-idrac9--1.8.19"} {
			if mc := parseMC(get(name).stdout); !strings.EqualFold(mc.maker[:4], "Dell") || mc.firmware != "7.00" {
				t.Errorf("%s reads as %+v", name, mc)
			}
		}
		if mc := parseMC(get("rec-iana-registry-missing-mc-info--1.8.19-master-be11d94").stdout); mc.maker == "" || strings.HasPrefix(mc.maker, "Unknown") {
			t.Errorf("without the registry: %+v", mc)
		}
	})
	t.Run("sensors", func(t *testing.T) {
		for _, r := range both("rec-sdr-list-mixed") {
			if s := parseSensors(r.stdout); s.Count != 11 || s.OK != 8 || len(s.Problems) != 1 || s.Problems[0] != "FAN A" {
				t.Errorf("%s reads as %+v", r.name, s)
			}
		}
		if s := parseSensors(get("real-sdr-list-with-errors-between").stdout); s.Count != s.OK+2 || s.Count < 9 {
			t.Errorf("errors between sensors: %+v", s)
		}
		if s := parseSensors(get("real-ibm-sdr-list").stdout); s.Count == 0 {
			t.Errorf("a list of IBM: %+v", s)
		}
	})
	t.Run("boot flags", func(t *testing.T) {
		for name, want := range map[string]bootFlags{
			"rec-bootparam5-legacy-pxe-once": {valid: true, code: 1}, "rec-bootparam5-efi-pxe-once": {valid: true, efi: true, code: 1},
			"rec-bootparam5-cd-legacy-once": {valid: true, code: 5}, "rec-bootparam5-bios-setup-efi": {valid: true, efi: true, code: 6},
			"rec-bootparam5-stale-invalid": {efi: true, code: 1},
		} {
			for _, r := range both(name) {
				if got, ok := parseBootFlags(r.stdout); !ok || got != want {
					t.Errorf("%s reads as %+v", r.name, got)
				}
			}
		}
	})
	t.Run("boot device", func(t *testing.T) { recordedBootDevices(t, all) })
	t.Run("logins", func(t *testing.T) { recordedLogins(t, all) })
}

// recordedBootDevices: only the line on stdout tells that a boot device was set.
func recordedBootDevices(t *testing.T, all map[string]*recording) {
	for name, r := range all {
		words := strings.Fields(r.command)
		if len(words) < 3 || words[1] != "bootdev" || !r.known {
			continue
		}
		o := &operations{Driver: New(Config{})}
		o.exec = func(context.Context, *login, command) (answer, error) { return r.answer, nil }
		refused, err := management{o}.writeForm(driver.NewContext(t.Context()), &login{}, command{words: words}, words[2])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if set := strings.Contains(r.stdout, "Set Boot Device to"); set == (refused != nil) {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

// recordedLogins: what each failed login is told apart as, by the quiet and the -v recording of it.
func recordedLogins(t *testing.T, all map[string]*recording) {
	for name, want := range map[string]string{
		"rec-auth-v-wrong-password--1.8.18": driver.CodeAuthFailed, "rec-auth-v-wrong-password--1.8.19": driver.CodeAuthFailed,
		"rec-auth-v-rakp2-unauthorized-role--1.8.19": driver.CodeAuthFailed, "rec-auth-forced-17-on-old-bmc--both": CodeCipherSuite,
		"real-auth-no-matching-cipher-suite": CodeCipherSuite, "rec-auth-insufficient-resources--both": driver.CodeBusy,
		"rec-auth-privilege-refused--both": CodePrivilege, "rec-privilege-limit-operator--both": CodePrivilege,
		"rec-auth-name-does-not-resolve--1.8.19": driver.CodeUnreachable,
	} {
		r := all[name]
		if r == nil {
			t.Errorf("there is no recording %s", name)
			continue
		}
		l := &login{user: "admin", suite: 17, target: target{host: "192.0.2.7", port: "623"}}
		if f := l.sessionFault(r.stderr + r.stdout); f == nil || f.Code != want {
			t.Errorf("%s: %+v, want %s", name, f, want)
		}
	}
	for _, name := range []string{"rec-auth-v-host-silent--1.8.18", "rec-auth-v-host-silent--1.8.19"} {
		if r := all[name]; r == nil || !strings.Contains(r.stderr, silent) {
			t.Errorf("%s is not taken for silence", name)
		}
	}
	for name, r := range all { // without -v they all look alike, and must not be guessed
		if strings.HasPrefix(name, "rec-auth-") && strings.TrimSpace(r.stderr) == "Error: "+noSession {
			if f := (&login{}).sessionFault(r.stderr); f != nil {
				t.Errorf("%s is taken for %s", name, f.Code)
			}
		}
	}
}
