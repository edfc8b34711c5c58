package metal

import (
	"context"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestARamdiskThatDoesNotCallFailsWithTheVerdict(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel() // as a deadline leaves it
	verdict := func(sentence, wayOut string) func(context.Context, string) (string, string) {
		return func(ctx context.Context, id string) (string, string) {
			if ctx.Err() != nil || id != "m-1" {
				t.Errorf("asked for %q with a context that is over: %v", id, ctx.Err())
			}
			return sentence, wayOut
		}
	}
	for name, c := range map[string]struct {
		p         Ports
		says, way string
	}{
		"known":           {Ports{Verdict: verdict("Powered on 1200 s ago, no DISCOVER.", "check the cable")}, "did not call in time. Powered on 1200 s ago, no DISCOVER.", "check the cable; then retry"},
		"not known":       {Ports{Verdict: verdict("", "")}, "was powered on but its ramdisk did not call", "timeline"},
		"nobody to judge": {Ports{}, "was powered on but its ramdisk did not call", "timeline"},
	} {
		e, ok := app.AsError(c.p.notUp(over, "m-1"))
		if !ok || e.Code != app.Timeout || e.Reason != "agent-not-up" || !strings.Contains(e.Message, c.says) || !strings.Contains(e.WayOut, c.way) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
