package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/plugins/driver"
)

// Case 55, with this plugin: killed in the middle of a call it takes its ipmitool with it, the call ends at once and says
// what it met, and the next one is served by a new process.
func TestKilledInACall(t *testing.T) {
	r := plugin(t)
	b, _ := bmcOf(t, r.Driver(ipmi.ID), bmctest.IPMIConfig{})
	deaf, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // a BMC that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	port := strconv.Itoa(deaf.LocalAddr().(*net.UDPAddr).Port)
	slow := b
	slow.Config = json.RawMessage(`{"address":"127.0.0.1:` + port + `"}`)
	ended := make(chan error, 1)
	go func() { _, err := invoke(t, slow); ended <- err }()
	if _, _, err := deaf.ReadFromUDP(make([]byte, 512)); err != nil { // ipmitool asks
		t.Fatal(err)
	}
	tool := toolAt(t, port)
	begun := time.Now()
	if err := syscall.Kill(parentOf(t, tool), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := driver.AsError(<-ended)
	if e == nil || e.Code != driver.CodeUnreachable || !e.Retryable {
		t.Errorf("the call ended with %+v", e)
	}
	t.Logf("the call ended %v after the kill", time.Since(begun).Round(time.Millisecond))
	until(t, "ipmitool is gone", func() bool { return !isTool(tool, port) })
	until(t, "the next call works", func() bool { _, err := invoke(t, b); return err == nil })
}

func invoke(t *testing.T, b bmctest.BMC) (json.RawMessage, error) {
	c := driver.NewContext(t.Context())
	c.Secrets = b.Secrets
	return b.Driver.Invoke(c, driver.Call{Kind: "power", Operation: "getPower", Config: b.Config, Args: json.RawMessage(`[]`)})
}

// toolAt finds the ipmitool that speaks to a port.
func toolAt(t *testing.T, port string) int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && isTool(pid, port) {
			return pid
		}
	}
	t.Fatal("no ipmitool runs")
	return 0
}

func isTool(pid int, port string) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(raw, []byte("ipmitool\x00")) && bytes.Contains(raw, []byte("\x00"+port+"\x00"))
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	parent, err := strconv.Atoi(strings.Fields(rest)[1])
	if err != nil || parent <= 1 || parent == os.Getpid() {
		t.Fatalf("the parent of ipmitool is %d (%v)", parent, err)
	}
	return parent
}

// until asks again and again, for at most a minute.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); <-time.After(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Errorf("not in a minute: %s", what)
}
