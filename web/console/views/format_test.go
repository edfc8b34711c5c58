package views

import (
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

func TestSizesAndTimesInWords(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 30: "3.0 GiB", 1536 << 20: "1.5 GiB", 1 << 62: "4.0 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 01 s", 90 * time.Minute: "1 h 30 min", 72 * time.Hour: "3 days"} {
		if got := Span(d); got != want {
			t.Errorf("Span(%s) = %q, want %q", d, got, want)
		}
	}
	now := time.Unix(1e9, 0)
	for at, want := range map[time.Time]string{{}: "never", now: "just now", now.Add(-7 * time.Minute): "7 min ago", now.Add(time.Hour): "just now"} {
		if got := Ago(at, now); got != want {
			t.Errorf("Ago = %q, want %q", got, want)
		}
	}
}

func TestFiguresSayWhatIsKnown(t *testing.T) {
	for want, p := range map[string]workflow.Progress{
		"1.0 GiB of 4.0 GiB (25%) | 512.0 MiB/s | 6 s left": {Done: 1 << 30, Total: 4 << 30, Unit: "bytes", Rate: 512 << 20, ETA: 6},
		"1.0 GiB":         {Done: 1 << 30, Unit: "bytes"},
		"3 of 12 (25%)":   {Done: 3, Total: 12},
		"":                {},
		"13 of 12 (100%)": {Done: 13, Total: 12},
	} {
		if got := strings.Join(figures(&p), " | "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestErrorsReadAsSentences(t *testing.T) {
	for want, e := range map[string]*app.Error{
		"The agent is gone": app.Errorf(app.Timeout, "x", "the agent is gone"),
		"Name: is empty":    app.Invalid("name", "is empty"),
		"Über":              app.Errorf(app.Timeout, "x", "über"),
		"":                  app.Errorf(app.Timeout, "x", ""),
	} {
		if got := sentence(e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The lines of an agent's log as people read them; what does not look like one stays as it is.
func TestAgentLinesInWords(t *testing.T) {
	for line, want := range map[string]string{
		`level=INFO msg="network is up" port=eth0`: "network is up port=eth0",
		"level=INFO msg=starting key=k":            "starting key=k",
		`level=WARN msg="a \"b\""`:                 `a "b"`,
		`level=WARN msg="never ends`:               `"never ends`,
		"plain":                                    "plain",
		`x msg="y"`:                                `x msg="y"`,
	} {
		if got := said(app.Event{Kind: "agent.log", Message: line}); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if got := said(app.Event{Kind: "user.login", Message: `level=INFO msg="a"`}); got != `level=INFO msg="a"` {
		t.Errorf("another kind: %q", got)
	}
}

func TestMarkTime(t *testing.T) {
	for seconds, want := range map[float64]string{-2: "2.0 s before", 0: "0.0 s", 6.25: "6.2 s"} {
		if got := markTime(seconds); got != want {
			t.Errorf("%v: %q", seconds, got)
		}
	}
}

func TestMembersInWords(t *testing.T) {
	for member, want := range map[string]string{"name": "Name", "tftpBlockSize": "TFTP block size", "bmc.driver": "BMC driver", "bmc": "BMC", "acceptPin": "Accept pin", "sha256": "SHA-256",
		"productUuid": "Product UUID", "sshKeys": "SSH keys", "links[0].mac": "links[0].mac", "biosSettings.ProcTurbo": "biosSettings.ProcTurbo"} {
		if got := memberName(member); got != want {
			t.Errorf("%s is %q, want %q", member, got, want)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", 30 * time.Second: "30s", 0: "0s"} {
		if got := inShort(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}
