package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/boot"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Before the first boot the agent tells what starts. A disk that starts nothing is refused with image, disk and the way out,
// unless the order says to go on; what could not be made sure of is told. Nothing is looked for unasked, nor on a disk that could
// not be configured.
func TestConfigureLooksForTheBootEntry(t *testing.T) {
	refused := app.Errorf(app.Unsupported, "no-boot-entry", "sda cannot start: its menu is empty").Do("deploy with skipChecks")
	for name, c := range map[string]struct {
		order   agentv1.Configure
		failed  error // of the configuring
		found   boot.Found
		looking error // of the looking
		reason  string
		note    string
		unseen  bool // nothing is looked for
	}{
		"found":                {order: agentv1.Configure{Look: true}, found: boot.Found{Entry: "Debian", Kernel: "/vmlinuz"}},
		"refused":              {order: agentv1.Configure{Look: true}, found: boot.Found{Refused: refused}, reason: "no-boot-entry"},
		"refused, and skipped": {order: agentv1.Configure{Look: true, SkipChecks: true}, found: boot.Found{Refused: refused}, note: "sda cannot start: its menu is empty"},
		"not sure":             {order: agentv1.Configure{Look: true}, found: boot.Found{Notes: []string{"no boot entry was found on sda"}}, note: "no boot entry was found on sda"},
		"not looked":           {order: agentv1.Configure{Look: true}, looking: errors.New("bad superblock"), note: `serial "S1", WWN "" starts could not be looked for: bad superblock`},
		"not asked for":        {unseen: true},
		"not configured":       {order: agentv1.Configure{Look: true}, failed: errors.New("no room"), unseen: true},
	} {
		looked := false
		h := configure(func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
			if c.failed != nil {
				return nil, c.failed
			}
			return &agentv1.ConfigureResult{Notes: []string{"first"}}, nil
		}, func(_ context.Context, d agentv1.DiskTarget) (boot.Found, error) {
			looked = true
			if d.Serial != "S1" {
				t.Errorf("%s: looked at %+v", name, d)
			}
			return c.found, c.looking
		})
		c.order.Disk, c.order.Image = agentv1.DiskTarget{Serial: "S1"}, "debian-12"
		raw, err := json.Marshal(c.order)
		if err != nil {
			t.Fatal(err)
		}
		out, err := h(t.Context(), agentv1.Command{Payload: raw}, func(agentv1.ProgressReport) {})
		if looked == c.unseen || c.failed != nil && !errors.Is(err, c.failed) {
			t.Errorf("%s: %v, looked %v", name, err, looked)
		}
		if e, ok := app.AsError(err); c.reason != "" && (!ok || e.Reason != c.reason || !strings.HasPrefix(e.Message, "image debian-12 is not ready to start: sda ") || e.WayOut == "") {
			t.Errorf("%s: %v", name, err)
		}
		r, ok := out.(*agentv1.ConfigureResult)
		if !ok || err != nil {
			if c.reason == "" && c.failed == nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		notes := strings.Join(r.Notes[1:], "; ")
		if r.Entry != c.found.Entry || r.Kernel != c.found.Kernel || (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) {
			t.Errorf("%s: %+v", name, r)
		}
		if notes != "" && !strings.HasPrefix(notes, "image debian-12") {
			t.Errorf("%s: %q", name, notes)
		}
	}
}
