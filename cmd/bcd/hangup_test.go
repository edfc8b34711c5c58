package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/host"
)

// commandEnv makes this test binary the command bcd.
const commandEnv = "BCD_TEST_COMMAND"

// TestMain is bcd itself, what it starts of itself, or a plugin; else it runs the tests.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__"), os.Getenv(commandEnv) != "":
		main()
	case os.Getenv(bcx.EnvCookie) != "":
		bcx.Main(bcx.Options{}, driver.Definition{ID: "acme", Version: "1.0.0", RunsOn: driver.RunsOnSite,
			Implements: map[string]driver.Factory{"power": func(json.RawMessage) (any, error) { return nil, driver.Errorf(driver.CodeUnsupported, "nothing") }}})
	}
	os.Exit(m.Run())
}

// appliance is "bcd site" in a process of its own.
type appliance struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *bufio.Scanner // standard output and error, in one
}

// patience is how long an appliance may take for what takes moments: it is here to name what hangs.
const patience = 5 * time.Minute

// runSite runs "bcd site" over a plugins directory. It ends with the test.
func runSite(t *testing.T, plugins string) *appliance {
	t.Helper()
	data, err := os.MkdirTemp("", "bcd") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	config := filepath.Join(t.TempDir(), "config.toml")
	text := fmt.Sprintf("[site]\ndata_dir = %q\n[listen]\nconsole = \"127.0.0.1:0\"\nagent = \"127.0.0.1:0\"\nboot = \"127.0.0.1:0\"\n[plugins]\ndir = %q\nbuiltin = \"\"\n", data, plugins)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &appliance{t: t, cmd: exec.Command(os.Args[0], "site", "--config", config)}
	a.cmd.Env = append(os.Environ(), commandEnv+"=1")
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	a.cmd.Stdout, a.cmd.Stderr = wr, wr
	err = child.Start(a.cmd)
	_ = wr.Close() // the child has its own
	if err != nil {
		t.Fatal(err)
	}
	a.said = bufio.NewScanner(rd)
	late := time.AfterFunc(patience, func() { _ = a.cmd.Process.Kill() }) // ends what waits for a line
	t.Cleanup(func() { late.Stop(); _ = a.cmd.Process.Kill(); _, _ = io.Copy(io.Discard, rd); _ = a.cmd.Wait() })
	return a
}

// says waits for a line that holds all of it.
func (a *appliance) says(parts ...string) {
	a.t.Helper()
	var before []string
	for a.said.Scan() {
		line := a.said.Text()
		missing := 0
		for _, p := range parts {
			if !strings.Contains(line, p) {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		before = append(before, line)
	}
	a.t.Fatalf("it ended and did not say %q, but\n%s", parts, strings.Join(before, "\n"))
}

// hangup sends what "systemctl reload bcd" sends, as the unit does.
func (a *appliance) hangup() {
	a.t.Helper()
	if out, err := exec.Command("/bin/kill", "-HUP", fmt.Sprint(a.cmd.Process.Pid)).CombinedOutput(); err != nil {
		a.t.Fatalf("%v: %s", err, out)
	}
}

// A SIGHUP takes changed pins up: a plugin comes and goes, and pins that cannot be used change nothing. The appliance lives
// through each.
func TestHangupTakesPinsUp(t *testing.T) {
	plugins := t.TempDir()
	if err := os.Chmod(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	a := runSite(t, plugins)
	a.says("console key")
	if _, err := host.Add(t.Context(), plugins, "acme-bmc", os.Args[0]); err != nil {
		t.Fatal(err)
	}
	a.hangup()
	a.says("a plugin serves a driver", "plugin=acme-bmc", "driver=acme")

	pins := filepath.Join(plugins, "pins")
	if err := os.Chmod(pins, 0o666); err != nil {
		t.Fatal(err)
	}
	a.hangup()
	a.says("level=ERROR", "reading the pins again")
	if err := os.Chmod(pins, 0o644); err != nil {
		t.Fatal(err)
	}

	if err := host.Remove(plugins, "acme-bmc"); err != nil {
		t.Fatal(err)
	}
	a.hangup()
	a.says("a plugin no longer serves a driver", "plugin=acme-bmc", "driver=acme")

	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for a.said.Scan() { // to its end
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
