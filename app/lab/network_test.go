package lab

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// testNetwork makes a network for a test, or leaves the test out, saying why.
func testNetwork(t *testing.T, name string, taps int) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: a network namespace needs root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("left out: %v", err)
	}
	n, err := NewNetwork(NetworkConfig{Name: name, Taps: taps, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestNetwork(t *testing.T) {
	n := testNetwork(t, "bcdt-virtual-net", 3)
	if taps := n.Taps(); len(taps) != 3 || taps[2] != "tap2" {
		t.Errorf("taps %v", taps)
	}
	l, err := n.Listen(t.Context(), "tcp", "10.77.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("inside"))
			_ = c.Close()
		}
	}()
	c, err := n.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); string(b) != "inside" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := net.InterfaceByName(Bridge); err == nil {
		t.Error("the bridge is in the host's namespace")
	}
	p, err := n.ListenPacket(t.Context(), "udp4", "0.0.0.0:67")
	if err != nil {
		t.Errorf("a privileged port inside: %v", err)
	} else {
		_ = p.Close()
	}
}

// TestNetworkClose leaves nothing behind, and may be called twice.
func TestNetworkClose(t *testing.T) {
	n := testNetwork(t, "bcdt-virtual-close", 1)
	for range 2 {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{filepath.Join(namedNamespaces, n.Name()), n.claim.path} {
		if _, err := os.Stat(p); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", p, err)
		}
	}
}

// TestNameIsHeld refuses a second lab of one name while the first lives.
func TestNameIsHeld(t *testing.T) {
	n := testNetwork(t, "bcdt-virtual-held", 1)
	_, err := NewNetwork(NetworkConfig{Name: n.Name()})
	if e, ok := app.AsError(err); !ok || e.Code != app.Conflict || e.WayOut == "" {
		t.Errorf("a second lab: %v", err)
	}
	if err := n.Do(func() error { _, err := net.InterfaceByName(Bridge); return err }); err != nil {
		t.Errorf("the first lab was harmed: %v", err)
	}
}

// TestLeftoversOfAKilledLab are taken over: the claim names a process that is gone, or a pid that another process has now,
// which must survive.
func TestLeftoversOfAKilledLab(t *testing.T) {
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Skipf("left out: %v", err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	for name, o := range map[string]owner{"gone": {PID: 1 << 30, Start: "1"}, "reused": {PID: bystander.Process.Pid, Start: "1"}} {
		t.Run(name, func(t *testing.T) {
			first := testNetwork(t, "bcdt-virtual-killed", 1)
			b, _ := json.Marshal(o)
			if err := os.WriteFile(first.claim.path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			second := testNetwork(t, "bcdt-virtual-killed", 2)
			if err := second.Do(func() error { _, err := net.InterfaceByName("tap1"); return err }); err != nil {
				t.Errorf("the second lab is not whole: %v", err)
			}
		})
	}
	start, err := startTime(bystander.Process.Pid)
	if err != nil || !(owner{bystander.Process.Pid, start}).alive() {
		t.Error("a process that only has the pid of a dead lab was ended")
	}
}

func TestStartTime(t *testing.T) {
	self, err := me()
	if err != nil || !self.alive() || strings.TrimLeft(self.Start, "0123456789") != "" {
		t.Errorf("self %+v, %v", self, err)
	}
	if (owner{PID: self.PID, Start: "1"}).alive() {
		t.Error("another start time is another process")
	}
}
