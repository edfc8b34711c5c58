package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

func TestPrintBootOrder(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := app.BootOrder{Policy: app.BootAsFound, PolicyReason: "its BMC boots the network once when asked", Writer: app.BootByAgent, WriterReason: "variables",
		Agent:   &app.BootView{Time: at, During: "commission"},
		Changed: &app.BootChange{Time: at, By: "system", What: []string{"debian was added, at 1"}},
		Problem: app.Errorf(app.Conflict, app.ReasonNVRAMFull, "no room\x1b[2J").Do("reset it"), Notes: []string{"partitions of sda: an error"}}
	var out bytes.Buffer
	printBootOrder(&out, api.BootOrderReport{BootOrder: b, Words: []string{"UEFI PXEv4", "debian\x1b[31m"}})
	got := out.String()
	for _, want := range []string{"read during commission", "  1  UEFI PXEv4", "  2  debian", "wanted: as-found (its BMC", "kept by: agent", "changed last by system", "debian was added, at 1", "NOT AS IT SHOULD BE: no room", "what to do: reset it", "note: partitions of sda"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("control characters reach the terminal")
	}
	out.Reset()
	if printBootOrder(&out, api.BootOrderReport{}); !strings.Contains(out.String(), "no order could be read") {
		t.Errorf("%q", out.String())
	}
}
