package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/cli"
)

// plugins runs a command of "bcd plugin" as somebody and gives what it printed.
func plugins(t *testing.T, euid int, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "plugin", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(pluginCommands(euid)...)
	cli.Usage(root) // as main does
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// configFile writes a configuration whose plugins directory is dir, "" for none.
func configFile(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	text := fmt.Sprintf("[site]\ndata_dir = %q\n", t.TempDir())
	if dir != "" {
		text += fmt.Sprintf("[plugins]\ndir = %q\n", dir)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantError(t *testing.T, err error, code app.Code, reason string) {
	t.Helper()
	if e, ok := app.AsError(err); !ok || e.Code != code || e.Reason != reason || e.WayOut == "" {
		t.Errorf("got %#v, want %s, %s and a way out", err, code, reason)
	}
}

// Who is not root changes nothing, whatever the configuration says.
func TestPluginsNeedRoot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins")
	for _, args := range [][]string{{"add", "/bin/true"}, {"pin", "acme"}, {"remove", "acme"}, {"reload"}} {
		_, err := plugins(t, 1000, append(args, "--config", configFile(t, dir))...)
		wantError(t, err, app.Forbidden, "needs-root")
		if !strings.Contains(err.Error(), "sudo") {
			t.Errorf("%s: the way out is %v", args[0], err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was made: %v", err)
	}
}

func TestPluginsNeedADirectory(t *testing.T) {
	for _, args := range [][]string{{"add", "/bin/true"}, {"pin", "acme"}, {"remove", "acme"}, {"reload"}} {
		_, err := plugins(t, 0, append(args, "--config", configFile(t, ""))...)
		wantError(t, err, app.InvalidConfig, "no-plugins-dir")
	}
}

// A plugin is installed, pinned anew and removed while no appliance runs.
func TestPluginsComeAndGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins")
	config := configFile(t, dir)
	file := filepath.Join(t.TempDir(), "acme")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for _, args := range [][]string{{"add", file}, {"pin", "acme"}} {
		out, err := plugins(t, 0, append(args, "--config", config)...)
		if err != nil || !strings.Contains(out, "pinned acme as "+hello) || !strings.Contains(out, "bcd does not run here") {
			t.Errorf("%s: %q, %v", args[0], out, err)
		}
	}
	if pins, err := os.ReadFile(filepath.Join(dir, "pins")); err != nil || string(pins) != hello+"  acme\n" {
		t.Errorf("the pins are %q, %v", pins, err)
	}
	if out, err := plugins(t, 0, "remove", "acme", "--config", config); err != nil || !strings.Contains(out, "removed acme") {
		t.Errorf("remove: %q, %v", out, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "acme")); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
	_, err := plugins(t, 0, "remove", "acme", "--config", config)
	if app.CodeOf(err) != app.NotFound {
		t.Errorf("removing it again gave %v", err)
	}
}

// What stands in the way has a code and a way out.
func TestPluginsDirectoryRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins")
	config := configFile(t, dir)
	_, err := plugins(t, 0, "pin", "acme", "--config", config)
	wantError(t, err, app.NotFound, "no-plugin-file")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = plugins(t, 0, "pin", "acme", "--config", config)
	wantError(t, err, app.NotFound, "no-plugin-file")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"add", "/bin/true"}, {"remove", "true"}} {
		_, err := plugins(t, 0, append(args, "--config", config)...)
		wantError(t, err, app.Conflict, "plugins-dir-refused")
	}
	_, err = plugins(t, 0, "add", "/nowhere/acme", "--config", configFile(t, filepath.Join(t.TempDir(), "plugins")))
	if e, ok := app.AsError(err); !ok || e.Code != app.InvalidInput || e.Field != "file" {
		t.Errorf("a file that is not there gave %v", err)
	}
}
