package ipmi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// open opens the console.
func (r *rig) open(t *testing.T) io.ReadWriteCloser {
	t.Helper()
	s, err := r.stream(t.Context())
	if err != nil {
		t.Fatalf("opening the console: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (r *rig) stream(ctx context.Context) (io.ReadWriteCloser, error) {
	c := driver.NewContext(ctx)
	c.Secrets = r.Secrets
	return r.Driver.Stream(c, driver.Call{Kind: "console", Operation: "open", Config: r.Config, Args: json.RawMessage(`[]`)})
}

// expect reads exactly want, and fails the test when it does not come within a minute.
func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	ended := make(chan error, 1)
	go func() { _, err := io.ReadFull(r, got); ended <- err }()
	select {
	case err := <-ended:
		if err != nil || string(got) != want {
			t.Fatalf("got %q (%v), want %q", got, err, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%q did not come", want)
	}
}

func newConsole(t *testing.T) (*rig, *bmctest.IPMI) {
	t.Helper()
	needTool(t)
	b := bmctest.NewIPMI(t, bmctest.IPMIConfig{Console: true})
	return newRig(t, unhurried, b.Address(), ""), b
}

func TestConsoleCarriesEveryByte(t *testing.T) {
	r, b := newConsole(t)
	console := r.open(t)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	b.Line.Print(all)
	expect(t, console, string(all))
	for _, typed := range [][]byte{
		all, {solEscape, '.'}, {'\r', solEscape, '.', '\n', solEscape, solEscape, '?'}, []byte("\r~."), {'\r', solEscape}, []byte(".B"), []byte("exit\r"),
	} {
		if _, err := console.Write(typed); err != nil {
			t.Fatal(err)
		}
		b.Line.Await(t, typed)
	}
}

func TestConsoleIsClosedCleanly(t *testing.T) {
	r, b := newConsole(t)
	for range 2 {
		console := r.open(t)
		if b.SOLSession() == 0 {
			t.Fatal("no session is active")
		}
		if err := console.Close(); err != nil {
			t.Fatal(err)
		}
		if b.SOLSession() != 0 {
			t.Fatal("the session is still active")
		}
		if _, err := console.Write([]byte("x")); err == nil {
			t.Error("a closed console takes bytes")
		}
		if _, err := console.Read(make([]byte, 1)); err == nil {
			t.Error("a closed console gives bytes")
		}
	}
}

func TestConsoleEndsWithItsContext(t *testing.T) {
	r, b := newConsole(t)
	ctx, cancel := context.WithCancel(t.Context())
	console, err := r.stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, console); err == nil {
		t.Log("the console ended without an error")
	}
	if err := console.Close(); err != nil {
		t.Fatal(err)
	}
	if b.SOLSession() != 0 {
		t.Error("the session is still active")
	}
}

// The key goes in before the first byte of the console, and none of it comes out there.
func TestConsoleWithAKey(t *testing.T) {
	needTool(t)
	b := bmctest.NewIPMI(t, bmctest.IPMIConfig{Console: true, Key: []byte("bmc-key")})
	r := newRig(t, unhurried, b.Address(), `{"kg":"secret://root/kg"}`)
	r.Secrets["secret://root/kg"] = "bmc-key"
	console := r.open(t)
	b.Line.Print([]byte("login: "))
	expect(t, console, "login: ")
	if _, err := io.WriteString(console, "root\r"); err != nil {
		t.Fatal(err)
	}
	b.Line.Await(t, []byte("root\r"))
}

func TestConsoleTakesOver(t *testing.T) {
	r, b := newConsole(t)
	first := r.open(t)
	old := b.SOLSession()
	second := r.open(t)
	if now := b.SOLSession(); now == old || now == 0 {
		t.Fatalf("the session is %x, and was %x", now, old)
	}
	b.Line.Print([]byte("hello"))
	expect(t, second, "hello")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConsoleRefusals(t *testing.T) {
	needTool(t)
	t.Run("none", func(t *testing.T) {
		r := newRig(t, unhurried, bmctest.NewIPMI(t, bmctest.IPMIConfig{}).Address(), "")
		_, err := r.stream(t.Context())
		if e := driver.AsError(err); e == nil || e.Code != CodeConsoleOff || !strings.Contains(e.Message, "turn it on") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		r := newRig(t, unhurried, bmctest.NewIPMI(t, bmctest.IPMIConfig{Console: true}).Address(), "")
		r.Secrets["password"] = "wrong"
		_, err := r.stream(t.Context())
		if e := driver.AsError(err); e == nil || e.Code != driver.CodeAuthFailed {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("not given up", func(t *testing.T) {
		b := bmctest.NewIPMI(t, bmctest.IPMIConfig{Console: true})
		b.Refuse("06/48", 0x80)
		_, err := newRig(t, unhurried, b.Address(), "").stream(t.Context())
		if e := driver.AsError(err); e == nil || e.Code != driver.CodeBusy {
			t.Fatalf("got %v", err)
		}
	})
}

func TestEscaperFollowsIpmitool(t *testing.T) {
	e := escaper{lineStart: true}
	var got []byte
	for _, part := range []string{"\xff.", "a\xff", "\r", "\xff", "\xff.", "\n\xff\xffx"} {
		got = append(got, e.encode([]byte(part))...)
	}
	want := []byte("\xff\xff." + "a\xff" + "\r" + "\xff\xff" + "\xff." + "\n\xff\xff\xffx")
	if !bytes.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}
