package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// envMain makes the test binary the command itself, envTool names another ipmitool to the plugin.
const (
	envMain = "BCX_IPMI_MAIN"
	envTool = "BCX_IPMI_TOOL"
)

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// plugin runs the driver as a plugin process, with the ipmitool of this machine or another.
func plugin(t *testing.T, tool ...string) *bcx.Running {
	t.Helper()
	d := ipmi.New(ipmi.Config{Tool: os.Getenv(envTool)}) // set in the plugin's process alone
	host := bcx.HostConfig{StartTimeout: time.Minute}
	for _, path := range tool {
		host.Env = append(host.Env, envTool+"="+path)
	}
	r := bcx.HarnessWith(t, bcx.Options{PluginVersion: ipmi.Version, Health: d.Health}, host, d.Definition())
	if err := r.Host.Health(t.Context()); err != nil {
		t.Skipf("left out: %v", err)
	}
	return r
}

func bmcOf(t *testing.T, d *driver.Driver, cfg bmctest.IPMIConfig) (bmctest.BMC, *bmctest.IPMI) {
	t.Helper()
	b := bmctest.NewIPMI(t, cfg)
	config, err := json.Marshal(map[string]string{"address": b.Address()})
	if err != nil {
		t.Fatal(err)
	}
	return bmctest.BMC{
		Driver: d, Config: config, UUID: bmctest.IPMIGUID,
		Secrets: driver.SecretMap{"username": bmctest.User, "password": bmctest.IPMIPassword},
	}, b
}

func TestConformanceAsAPlugin(t *testing.T) {
	r := plugin(t)
	bmctest.Conformance(t, func(t *testing.T) bmctest.BMC {
		b, _ := bmcOf(t, r.Driver(ipmi.ID), bmctest.IPMIConfig{})
		return b
	})
}

// TestManifest: what a host is told is what the definition says.
func TestManifest(t *testing.T) {
	r := plugin(t)
	d := r.Driver(ipmi.ID)
	if d == nil || d.Version() != "1.0.0" || d.RunsOn() != driver.RunsOnSite || !slices.Equal(d.Kinds(), []string{"console", "inspect", "management", "power"}) {
		t.Fatalf("the plugin serves %+v", d)
	}
	for kind, want := range map[string]string{"power": "getPower", "inspect": "inspect", "management": "setBootDevice"} {
		if got := d.RetrySafe()[kind]; !slices.Equal(got, []string{want}) {
			t.Errorf("of %s may run twice: %q", kind, got)
		}
	}
	if d.IsRetrySafe("power", "setPower") {
		t.Error("a power change may not run twice")
	}
	conn, err := r.Host.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	desc, err := conn.Describe(t.Context())
	if err != nil || desc.PluginVersion != ipmi.Version || !slices.Equal(desc.Drivers[0].Streams, []string{"console.open"}) {
		t.Errorf("the plugin describes itself as %+v (%v)", desc, err)
	}
	for config, fine := range map[string]bool{
		`{"address":"192.0.2.5:623","options":{"cipherSuite":3,"privilege":"operator","kg":"secret://root/kg"}}`: true,
		`{"address":"192.0.2.5","options":{"cipherSuite":1}}`:                                                    false,
		`{"address":"192.0.2.5","options":{"suite":17}}`:                                                         false,
	} {
		if issues := d.ValidateConfig(json.RawMessage(config)); (len(issues) == 0) != fine {
			t.Errorf("%s: %v", config, issues)
		}
	}
}

func TestConsoleAsAPlugin(t *testing.T) {
	r := plugin(t)
	b, machine := bmcOf(t, r.Driver(ipmi.ID), bmctest.IPMIConfig{Console: true})
	c := driver.NewContext(t.Context())
	c.Secrets = b.Secrets
	s, err := b.Driver.Stream(c, driver.Call{Kind: "console", Operation: "open", Config: b.Config, Args: json.RawMessage(`[]`)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	machine.Line.Print([]byte("login: "))
	got := make([]byte, 7)
	if _, err := io.ReadFull(s, got); err != nil || string(got) != "login: " {
		t.Fatalf("got %q (%v)", got, err)
	}
	for _, typed := range []string{"root\r", "~.", "\xff.\r\xff."} {
		if _, err := io.WriteString(s, typed); err != nil {
			t.Fatal(err)
		}
		machine.Line.Await(t, []byte(typed))
	}
}

// Case 51, on this plugin's side: by hand it prints nothing on stdout, says what it is, and fails.
func TestByHand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{envMain + "=1"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	if stdout.Len() > 0 || !strings.Contains(stderr.String(), "plugin") {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

func TestCancelledAsAPlugin(t *testing.T) {
	tool, asked := waiting(t)
	r := plugin(t, tool)
	b, _ := bmcOf(t, r.Driver(ipmi.ID), bmctest.IPMIConfig{})
	b.Config = json.RawMessage(deafConfig)
	ctx, cancel := context.WithCancel(t.Context())
	c := driver.NewContext(ctx)
	c.Secrets = b.Secrets
	ended := make(chan error, 1)
	go func() {
		_, err := b.Driver.Invoke(c, driver.Call{Kind: "power", Operation: "getPower", Config: b.Config, Args: json.RawMessage(`[]`)})
		ended <- err
	}()
	asked()
	cancel()
	if e := driver.AsError(<-ended); e == nil || e.Code != driver.CodeCancelled {
		t.Errorf("got %v", e)
	}
}
