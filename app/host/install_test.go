package host

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func installation(t *testing.T) (Installation, *bytes.Buffer, *[]string) {
	t.Helper()
	root, out, ran := t.TempDir(), &bytes.Buffer{}, &[]string{}
	bin := filepath.Join(root, "bcd-download")
	if err := os.WriteFile(bin, []byte("ELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Installation{Root: root, Binary: bin, Out: out, Run: func(_ context.Context, name string, args ...string) error {
		*ran = append(*ran, name+" "+strings.Join(args, " "))
		return nil
	}}, out, ran
}

func TestInstallTwiceKeepsTheConfiguration(t *testing.T) {
	in, out, _ := installation(t)
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	mine := "[site]\nname = \"mine\"\n"
	if err := os.WriteFile(filepath.Join(in.Root, ConfigPath), []byte(mine), 0o644); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(in.Root, ConfigPath)); string(got) != mine {
		t.Errorf("the configuration became %q", got)
	}
	if strings.Contains(out.String(), "writing") {
		t.Errorf("a second install wrote again:\n%s", out)
	}
}

// The unit lets the service write to its data, wherever the configuration puts that, and nowhere else.
func TestDataDirOfTheConfiguration(t *testing.T) {
	in, _, ran := installation(t)
	in.DataDir = "/srv/bcd"
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(in.Root, UnitPath))
	if err != nil || !strings.Contains(string(text), "\nReadWritePaths=/srv/bcd\n") || strings.Contains(unit, "ReadWritePaths") {
		t.Errorf("%v: %s", err, text)
	}
	if info, err := os.Stat(filepath.Join(in.Root, in.DataDir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if !strings.Contains(strings.Join(*ran, "\n"), "chown -R bcd:bcd /srv/bcd\n") {
		t.Errorf("%q", *ran)
	}
	for _, dir := range []string{"/home/op/bcd", "/root", "/tmp/bcd", "/srv/../root/x", "/srv/a b", "/srv/%h", "/", "data"} {
		in, out, ran := installation(t)
		in.DataDir = dir
		if err := in.Install(t.Context()); app.CodeOf(err) != app.InvalidConfig || len(*ran) > 0 || out.Len() > 0 {
			t.Errorf("%s: %v, %q", dir, err, *ran)
		}
	}
}

// A service that runs goes on with the old program unless it is restarted, after systemd has read the new unit.
func TestUpgradeRestartsTheService(t *testing.T) {
	in, out, ran := installation(t)
	const restart = "systemctl daemon-reload\nsystemctl try-restart bcd.service\nsystemctl enable --now bcd.service"
	for _, c := range []struct {
		name, path, body string
		want             bool
	}{
		{"first time", "", "", false},
		{"the same again", "", "", false},
		{"another binary", "bcd-download", "ELF, newer", true},
		{"the same newer one", "", "", false},
		{"another unit", UnitPath, "[Service]\n", true},
	} {
		if c.path != "" {
			if err := os.WriteFile(filepath.Join(in.Root, c.path), []byte(c.body), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		out.Reset()
		*ran = nil
		if err := in.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		if did := strings.Contains(strings.Join(*ran, "\n"), restart); did != c.want || strings.Contains(out.String(), "is restarted") != c.want {
			t.Errorf("%s: restarted %v\n%s\n%s", c.name, did, strings.Join(*ran, "\n"), out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(in.Root, BinaryPath)); err != nil || string(b) != "ELF, newer" {
		t.Errorf("installed %q, %v", b, err)
	}
}

func TestUninstallKeepsConfigurationAndData(t *testing.T) {
	in, out, ran := installation(t)
	in.PluginsDir = "/srv/plugins"
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing to remove
		if err := in.Uninstall(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{ConfigPath, DataDir, in.PluginsDir} {
		if !strings.Contains(out.String(), path) {
			t.Errorf("that %s is kept is not said:\n%s", path, out)
		}
	}
	for path, want := range map[string]bool{ConfigPath: true, DataDir: true, UnitPath: false, BinaryPath: false} {
		if _, err := os.Stat(filepath.Join(in.Root, path)); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", path, err == nil, want)
		}
	}
	if n := strings.Count(strings.Join(*ran, "\n"), "disable --now"); n != 1 {
		t.Errorf("disabled %d times", n)
	}
}

// What plugins need of the unit, and that everything they do not need stays shut.
func TestUnitLetsPluginsBeConfined(t *testing.T) {
	values := map[string]string{}
	for line := range strings.Lines(unit) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[key] = value
		}
	}
	const caps = "CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SETUID CAP_SETGID CAP_KILL CAP_CHOWN"
	for key, want := range map[string]string{
		"User": "bcd", "AmbientCapabilities": caps, "CapabilityBoundingSet": caps, "Delegate": "yes", "DelegateSubgroup": "main", "ProtectControlGroups": "no",
		"KillMode": "mixed", "ExecReload": "/bin/kill -HUP $MAINPID", "NoNewPrivileges": "yes", "RestrictNamespaces": "yes", "ProtectSystem": "strict", "UMask": "0077",
	} {
		if values[key] != want {
			t.Errorf("%s=%s, want %s", key, values[key], want)
		}
	}
}
