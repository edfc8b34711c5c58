package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

func TestPrintKexec(t *testing.T) {
	trials := []app.KexecTrial{
		{Image: "debian\x1b[2J", Machine: "node1", Outcome: app.KexecSilent, Sentence: "nothing was heard\x07", Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		{Image: "debian", Machine: "node2", Outcome: app.KexecWorked, Time: time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)},
	}
	var out bytes.Buffer
	printKexec(&out, "node1", api.KexecReport{KexecMemory: app.RecallKexec("Acme R1", "", "", trials), Trials: trials})
	for _, want := range []string{"node1 (Acme R1): kexec: worked 1 of 2 on this model; last failure 2026-03-01 on node1", "silent", "nothing was heard", "worked    debian on node2\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\x07") {
		t.Error("control characters reach the terminal")
	}
}
