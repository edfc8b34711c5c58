package site

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/host"
)

func load(t *testing.T, text string) (File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadFile(path)
}

func TestConfigDefaults(t *testing.T) {
	f, err := LoadFile("")
	if err != nil || f.Site.DataDir != DefaultDataDir || f.Listen.Console != DefaultConsole || f.Site.Name != "" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = load(t, "[listen]\nconsole = \"192.0.2.1:9443\"\nagent = \"[2001:db8::1]:9444\"\n[bmc_drivers]\nacme-bmc = [\"power.getPower\", \"acme-cooling.setFanCurve\"]\n")
	if err != nil || f.Listen.Console != "192.0.2.1:9443" || f.Listen.Boot != DefaultBoot || len(f.BMCDrivers["acme-bmc"]) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	if p := f.Plugins; p.Dir != "" || p.builtin() != "ipmi" || !p.sandbox(nil).Enabled || !p.sandbox(nil).Landlock || p.MemoryMax != 0 || len(p.privileged()) != 0 {
		t.Errorf("the defaults of [plugins] are %+v", p)
	}
	f2, err := load(t, "[plugins]\ndir = \"/usr/local/lib/bcd/plugins\"\nprivileged = \"kata, runc\"\nsandbox = false\nbuiltin = \"\"\ncgroup = \"/sys/fs/cgroup/system.slice/bcd.service/plugins\"\n"+
		"memory_max = 1_073_741_824\npids_max = 256\nread_paths = [\"/srv\"]\n")
	if p := f2.Plugins; err != nil || len(p.privileged()) != 2 || p.sandbox(nil).Enabled || p.sandbox(nil).Landlock || p.builtin() != "" || p.MemoryMax != 1<<30 {
		t.Errorf("%+v, %v", p, err)
	}
	needs := f.Needs()
	if len(needs) != 7 || needs[0].Port != 9443 || needs[1].Port != 9444 || needs[3].Port != 67 || needs[6] != (host.Need{Proto: "udp", Port: 4011, For: "proxy DHCP"}) {
		t.Errorf("needs %+v", needs)
	}
}

// A configuration that was named must be there: a slip of the pen starts no empty appliance. Where its data is depends on no
// working directory, and an address that cannot be opened is told by why.
func TestMistakesAroundTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	for name, f := range map[string]func() error{
		"not there":   func() error { _, err := LoadFile(filepath.Join(dir, "nope.toml")); return err },
		"a directory": func() error { _, err := LoadFile(dir); return err },
		"relative":    func() error { _, err := load(t, "[site]\ndata_dir = \"data\"\n"); return err },
		"no ramdisk":  func() error { _, err := openBootFiles(dir, filepath.Join(dir, "nope"), ""); return err },
		"cut off":     func() error { _, err := load(t, "[site\nname="); return err },
		"no text":     func() error { _, err := load(t, "\xb2\x00\xff"); return err },
	} {
		if e, ok := app.AsError(f()); !ok || e.Code != app.InvalidConfig || e.WayOut == "" || strings.Contains(e.WayOut, "line") != slices.Contains([]string{"cut off", "no text"}, name) {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for errno, want := range map[syscall.Errno]string{syscall.EADDRINUSE: "bcd check", syscall.EADDRNOTAVAIL: "no such address", syscall.EACCES: "bcd install"} {
		e, ok := app.AsError(listenError("listen.boot", "192.0.2.1:80", os.NewSyscallError("bind", errno)))
		if !ok || e.Field != "listen.boot" || !strings.Contains(e.WayOut, want) {
			t.Errorf("%v: %+v", errno, e)
		}
	}
}

func TestConfigMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"[listen]\nconsol = \":8443\"":          `unknown key "listen.consol"`,
		"[sit]\nname = \"x\"":                   "unknown key",
		"[listen]\nconsole = 8443":              "cannot be read",
		"[listen":                               "cannot be read",
		"[site]\nname = \"a\\nb\"":              "site.name",
		"[listen]\nconsole = \"8443\"":          "listen.console",
		"[listen]\nagent = \":99999\"":          "listen.agent",
		"[listen]\nboot = \":80x\"":             "listen.boot",
		"[listen]\nboot = \":\"":                "listen.boot",
		"[listen]\nboot = \"not a host:80\"":    "listen.boot",
		"[listen]\nagent = \"localhost:8444\"":  "listen.agent",
		"[listen]\nconsole = \"2001:db8::1:8\"": "listen.console",
	} {
		_, err := load(t, text)
		if err == nil || (!strings.Contains(err.Error(), want) && fieldOf(err) != want) {
			t.Errorf("%q gave %v, want %s", text, err, want)
		}
	}
	for text, field := range map[string]string{
		`dri = "/x"`: "", `dir = "plugins"`: "plugins.dir", `user = "root"`: "plugins.user", `user = "0"`: "plugins.user", `user = "a b"`: "plugins.user",
		`privileged = "kata,../x"`: "plugins.privileged", `privileged = ["kata"]`: "", `sandbox = "yes"`: "", `cgroup = "/tmp/x"`: "plugins.cgroup",
		`cgroup = "/sys/fs/cgroup/../x"`: "plugins.cgroup", `cgroup = "/sys/fs/cgroup"`: "plugins.cgroup", `memory_max = 5`: "plugins.memory_max",
		`memory_max = -1`: "plugins.memory_max", `pids_max = 2`: "plugins.pids_max", `pids_max = 100`: "plugins.cgroup",
		`read_paths = ["x"]`: "plugins.read_paths", `builtin = "redfish"`: "plugins.builtin",
	} {
		if _, err := load(t, "[plugins]\n"+text); err == nil || field != "" && fieldOf(err) != field {
			t.Errorf("%s gave %v, want an error at %q", text, err, field)
		}
	}
	for _, operation := range []string{"power", "power.", "power.getpower", "power getPower", "Power.getPower", "https://192.0.2.0", ""} {
		if _, err := load(t, "[bmc_drivers]\nacme-bmc = [\"power.setPower\", \""+operation+"\"]"); fieldOf(err) != "bmc_drivers.acme-bmc" || !strings.Contains(err.Error(), fmt.Sprintf("%q", operation)) {
			t.Errorf("%q gave %v", operation, err)
		}
	}
	// All at once.
	_, err := load(t, "[listen]\nagent = \"x\"\nboot = \"y\"")
	if err == nil || strings.Count(err.Error(), "is not an address") != 2 {
		t.Errorf("two mistakes gave %v", err)
	}
}

func fieldOf(err error) string {
	e, ok := app.AsError(err)
	if !ok {
		return ""
	}
	return e.Field
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	first, err := loadKey(dir, "site.key")
	if err != nil || len(first) != siteKeySize {
		t.Fatal(len(first), err)
	}
	path := filepath.Join(dir, "site.key")
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("made with %v, %v", st.Mode(), err)
	}
	if again, err := loadKey(dir, "site.key"); err != nil || string(again) != string(first) {
		t.Errorf("another key, or %v", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o666, 0o610} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := loadKey(dir, "site.key"); app.CodeOf(err) != app.InvalidConfig {
			t.Errorf("mode %o gave %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "short", strings.Repeat("x", siteKeySize+1)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadKey(dir, "site.key"); app.CodeOf(err) != app.InvalidConfig {
			t.Errorf("%d bytes gave %v", len(content), err)
		}
	}
}

func TestVaultAndApprovalsOfAConfiguration(t *testing.T) {
	for text, field := range map[string]string{
		"[site]\ndestructive_batch = -1":                                      "site.destructive_batch",
		"[vault]\naddress = \"http://vault.example\"\ntoken_file = \"/x\"":    "vault.address",
		"[vault]\naddress = \"https://vault.example\"":                        "vault",
		"[vault]\ntoken_file = \"/x\"":                                        "vault.address",
		"[vault]\naddress = \"https://vault.example\"\ncolour = \"red\"":      "",
		"[vault]\naddress = \"https://vault.example\"\ntimeout = \"a while\"": "",
	} {
		_, err := load(t, text)
		e, ok := app.AsError(err)
		if !ok || e.Code != app.InvalidConfig || e.Field != field {
			t.Errorf("%q: %v", text, err)
		}
	}
	text := "[site]\ndestructive_batch = 20\n[vault]\naddress = \"https://vault.example:8200\"\nrole_id = \"r\"\nsecret_id_file = \"/x\"\ntimeout = \"3s\"\n"
	f, err := load(t, text)
	if err != nil || f.Site.DestructiveBatch != 20 || f.Vault.RoleID != "r" {
		t.Errorf("%+v, %v", f.Vault, err)
	}
}
