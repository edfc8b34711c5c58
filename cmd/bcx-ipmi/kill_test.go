package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	path, asked := waiting(t)
	r := plugin(t, path)
	b, _ := bmcOf(t, r.Driver(ipmi.ID), bmctest.IPMIConfig{})
	slow := b
	slow.Config = json.RawMessage(deafConfig)
	ended := make(chan error, 1)
	go func() { _, err := invoke(t, slow); ended <- err }()
	tool := asked()
	begun := time.Now()
	if err := syscall.Kill(parentOf(t, tool), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := driver.AsError(<-ended)
	if e == nil || e.Code != driver.CodeUnreachable || !e.Retryable {
		t.Errorf("the call ended with %+v", e)
	}
	t.Logf("the call ended %v after the kill", time.Since(begun).Round(time.Millisecond))
	until(t, "ipmitool is gone", func() bool { return !isTool(tool, path) })
	until(t, "the next call works", func() bool { _, err := invoke(t, b); return err == nil })
}

func invoke(t *testing.T, b bmctest.BMC) (json.RawMessage, error) {
	c := driver.NewContext(t.Context())
	c.Secrets = b.Secrets
	return b.Driver.Invoke(c, driver.Call{Kind: "power", Operation: "getPower", Config: b.Config, Args: json.RawMessage(`[]`)})
}

// deafConfig is that of a BMC of which ipmitool is not to say anything, see waiting.
const deafConfig = `{"address":"192.0.2.9"}`

// waiting makes an ipmitool that asks the BMC of deafConfig for ever, and others as the machine's own does. asked waits until
// it asks, and gives its process id.
func waiting(t *testing.T) (path string, asked func() int) {
	t.Helper()
	if os.Getenv(envTool) != "" { // this is the plugin's process, which has it
		return "", nil
	}
	own, err := exec.LookPath("ipmitool")
	if err != nil {
		t.Skipf("left out: %v; install the Debian package ipmitool", err)
	}
	dir := t.TempDir()
	path, said, never := filepath.Join(dir, "ipmitool"), filepath.Join(dir, "said"), filepath.Join(dir, "never")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *192.0.2.9*) echo $$ >%s; read x <%s;; *) exec %s \"$@\";; esac\n", said, never, own)
	if err := errors.Join(os.WriteFile(path, []byte(script), 0o755), syscall.Mkfifo(said, 0o600), syscall.Mkfifo(never, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path, func() int {
		t.Helper()
		b, err := os.ReadFile(said) // begins when somebody writes
		pid, perr := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || perr != nil {
			t.Fatal(err, perr)
		}
		return pid
	}
}

func isTool(pid int, path string) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(raw, []byte(path+"\x00"))
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
