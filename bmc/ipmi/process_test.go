package ipmi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

const statusOn, statusOff = "Chassis Power is on\n", "Chassis Power is off\n"

// newFaked is a driver over a fake ipmitool.
func newFaked(t *testing.T, cfg Config, options string, answers map[string]fakeAnswer) (*rig, *fake) {
	t.Helper()
	f := newFake(t, answers)
	cfg.Tool = f.tool()
	return newRig(t, cfg, "192.0.2.7", options), f
}

// Case 45: nobody on this host reads a secret out of a process.
func TestSecretsStayOutOfProcesses(t *testing.T) {
	const key = `K(g)$key'"\` + "`;"
	for _, password := range []string{bmctest.IPMIPassword, `p@ss\w$rd-'"`, "-leading", "pässwörd", strings.Repeat("x", 20)} {
		r, f := newFaked(t, Config{}, `{"kg":"secret://root/kg"}`, map[string]fakeAnswer{"chassis power status": {Hang: true}})
		r.Secrets["password"], r.Secrets["secret://root/kg"] = password, key
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan *driver.Error)
		go func() { _, e := r.call(ctx, "power", "getPower", `[]`); ended <- e }()
		c := f.await(t)
		for _, pid := range []int{c.Pid, c.Child} {
			for _, name := range []string{"cmdline", "environ"} {
				raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(raw), password) || strings.Contains(string(raw), key) {
					t.Errorf("/proc/%d/%s holds a secret: %q", pid, name, raw)
				}
			}
		}
		if c.Password != password || c.Stdin != key+"\n" {
			t.Errorf("ipmitool got the password %q and the key %q", c.Password, c.Stdin)
		}
		if want := "PATH=/usr/sbin:/usr/bin:/sbin:/bin\x00"; c.Environ != want {
			t.Errorf("the environment is %q, want %q", c.Environ, want)
		}
		cancel()
		if e := <-ended; e == nil || e.Code != driver.CodeCancelled {
			t.Fatalf("the cancelled call gave %v", e)
		}
		f.gone(t, c)
	}
}

// await waits for the first run of the fake.
func (f *fake) await(t *testing.T) fakeCall {
	t.Helper()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		if c := f.calls(t); len(c) > 0 {
			return c[0]
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatal("ipmitool was not started")
	return fakeCall{}
}

// gone waits until a run and its child are no more.
func (f *fake) gone(t *testing.T, c fakeCall) {
	t.Helper()
	for _, pid := range []int{c.Pid, c.Child} {
		limit := time.Now().Add(time.Minute)
		for ; !dead(pid) && time.Now().Before(limit); <-time.After(5 * time.Millisecond) {
		}
		if !dead(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// dead reports a process that is gone, or a zombie that its new parent has not taken away yet.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}

func TestRunLimit(t *testing.T) {
	r, f := newFaked(t, Config{RunLimit: 300 * time.Millisecond}, "", map[string]fakeAnswer{"chassis power status": {Hang: true}})
	e := r.refused(t, "power", "getPower", `[]`, driver.CodeUnreachable)
	if !e.Retryable {
		t.Error("it must be retryable")
	}
	for _, c := range f.calls(t) { // none when the limit passed before the fake was up
		f.gone(t, c)
	}
}

func TestDeadlineOfTheCaller(t *testing.T) {
	r, _ := newFaked(t, Config{}, "", map[string]fakeAnswer{"chassis power status": {Hang: true}})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, e := r.call(ctx, "power", "getPower", `[]`); e == nil || e.Code != driver.CodeTimeout {
		t.Fatalf("got %v", e)
	}
}

// Case 49: whatever stands in a field of a BMC reaches ipmitool as one argument, or nothing runs.
func TestNothingIsInjected(t *testing.T) {
	trap := filepath.Join(t.TempDir(), "trap")
	touch := []string{"a;touch " + trap, "$(touch " + trap + ")", "`touch " + trap + "`", "a\ntouch " + trap, "-oProxy", "a b", "a|b", "a\x00b", ""}
	for _, bad := range touch {
		r, f := newFaked(t, Config{}, "", map[string]fakeAnswer{"chassis power status": {Stdout: statusOn}})
		r.Secrets["username"] = bad
		if bad != "-oProxy" { // an option's value, so no option
			r.refused(t, "power", "getPower", `[]`, driver.CodeNoCredentials)
		}
		r.Secrets["username"], r.Secrets["password"] = "admin", bad
		if bad != "a|b" && bad != "-oProxy" {
			r.refused(t, "power", "getPower", `[]`, driver.CodeNoCredentials)
		}
		r.Secrets["password"] = "secret"
		r.Config, _ = json.Marshal(map[string]string{"address": "198.51.100.5" + bad})
		if bad != "" && bad != "-oProxy" { // a host name may end so
			r.refused(t, "power", "getPower", `[]`, CodeInvalidAddress)
		}
		if calls := f.calls(t); len(calls) > 0 {
			t.Errorf("%q: ipmitool ran: %+v", bad, calls)
		}
	}
	if _, err := os.Stat(trap); err == nil {
		t.Fatal("something ran")
	}
}

func TestArguments(t *testing.T) {
	for options, want := range map[string][]string{
		"":                  {"-I", "lanplus", "-H", "192.0.2.7", "-p", "623", "-U", "admin", "-f", "/dev/fd/3", "-C", "17", "-N", "2", "-R", "2", "chassis", "power", "status"},
		`{"cipherSuite":3}`: {"-I", "lanplus", "-H", "192.0.2.7", "-p", "623", "-U", "admin", "-f", "/dev/fd/3", "-C", "3", "-N", "2", "-R", "2", "chassis", "power", "status"},
		`{"cipherSuite":12,"privilege":"operator"}`:    {"-I", "lanplus", "-H", "192.0.2.7", "-p", "623", "-U", "admin", "-f", "/dev/fd/3", "-C", "12", "-L", "OPERATOR", "-N", "2", "-R", "2", "chassis", "power", "status"},
		`{"kg":"env://BCD_SECRET_KG","cipherSuite":8}`: {"-I", "lanplus", "-H", "192.0.2.7", "-p", "623", "-U", "admin", "-f", "/dev/fd/3", "-C", "8", "-Y", "-N", "2", "-R", "2", "chassis", "power", "status"},
	} {
		r, f := newFaked(t, Config{}, options, map[string]fakeAnswer{"chassis power status": {Stdout: statusOff}})
		r.Secrets["username"], r.Secrets["env://BCD_SECRET_KG"] = "admin", "0x0102030a0b"
		if strings.Contains(options, "kg") {
			r.refused(t, "power", "getPower", `[]`, driver.CodeNoCredentials) // a line end in the key
			r.Secrets["env://BCD_SECRET_KG"] = "0x01020300"
		}
		if out := string(r.must(t, "power", "getPower", `[]`)); out != `{"power":"off"}` {
			t.Errorf("got %s", out)
		}
		calls := f.calls(t)
		if len(calls) != 1 || !slices.Equal(calls[0].Args, want) {
			t.Errorf("%s: ipmitool ran with %+v, want %q", options, calls, want)
		}
		if strings.Contains(options, "kg") && calls[0].Stdin != "\x01\x02\x03\n" {
			t.Errorf("the key came as %q", calls[0].Stdin)
		}
	}
}

func TestHealth(t *testing.T) {
	missing := New(Config{Tool: filepath.Join(t.TempDir(), toolName)})
	err := missing.Health(t.Context())
	if e := driver.AsError(err); e == nil || e.Code != driver.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	r := newRig(t, Config{Tool: filepath.Join(t.TempDir(), toolName)}, "192.0.2.7", "")
	r.refused(t, "power", "getPower", `[]`, driver.CodeUnavailable)
	r.refused(t, "power", "setPower", `["on"]`, driver.CodeUnavailable)
	if _, err := r.stream(t.Context()); driver.AsError(err).Code != driver.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	if err := New(Config{Tool: newFake(t, nil).tool()}).Health(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
	plain := filepath.Join(t.TempDir(), toolName)
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if New(Config{Tool: plain}).Health(t.Context()) == nil {
		t.Error("a file that cannot be run passes")
	}
}

func TestOutputIsBounded(t *testing.T) {
	var kept bounded
	if n, err := io.Copy(&kept, strings.NewReader(strings.Repeat("x", 5<<20))); n != 5<<20 || err != nil || len(kept.String()) != maxOutput {
		t.Errorf("of 5 MiB %d bytes were taken (%v) and %d kept", n, err, len(kept.String()))
	}
	r, _ := newFaked(t, Config{}, "", map[string]fakeAnswer{"chassis power status": {Stderr: strings.Repeat("x", 5<<20), Exit: 1}})
	e := r.refused(t, "power", "getPower", `[]`, driver.CodeBMCError)
	if len(e.Message) > 500 || !e.Retryable {
		t.Errorf("%d bytes of message, retryable %v", len(e.Message), e.Retryable)
	}
}
