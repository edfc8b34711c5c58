package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Before the first boot the agent tells which entry starts; one that it cannot read fails nothing and is told with image, disk
// and the way out. Nothing is looked for unasked, nor on a disk that could not be configured.
func TestConfigureLooksForTheBootEntry(t *testing.T) {
	for name, c := range map[string]struct {
		look      bool
		failed    error // of the configuring
		found     error
		entry     string
		note      string
		notLooked bool
	}{
		"found":          {look: true, entry: "Debian"},
		"not found":      {look: true, found: app.Errorf(app.Unsupported, "no-boot-entry", "its menu is empty"), note: "its menu is empty"},
		"not readable":   {look: true, found: errors.New("bad superblock"), note: "bad superblock"},
		"not asked for":  {notLooked: true},
		"not configured": {look: true, failed: errors.New("no room"), notLooked: true},
	} {
		looked := false
		h := configure(func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
			if c.failed != nil {
				return nil, c.failed
			}
			return &agentv1.ConfigureResult{Notes: []string{"first"}}, nil
		}, func(_ context.Context, d agentv1.DiskTarget) (string, string, error) {
			looked = true
			if d.Serial != "S1" {
				t.Errorf("%s: looked at %+v", name, d)
			}
			return "Debian", "/vmlinuz", c.found
		})
		raw, err := json.Marshal(agentv1.Configure{Disk: agentv1.DiskTarget{Serial: "S1"}, Image: "debian-12", Look: c.look})
		if err != nil {
			t.Fatal(err)
		}
		out, err := h(t.Context(), agentv1.Command{Payload: raw}, func(agentv1.ProgressReport) {})
		if !errors.Is(err, c.failed) || looked == c.notLooked {
			t.Errorf("%s: %v, looked %v", name, err, looked)
		}
		r, ok := out.(*agentv1.ConfigureResult)
		if !ok {
			continue
		}
		notes := strings.Join(r.Notes[1:], "; ")
		if r.Entry != c.entry || (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) {
			t.Errorf("%s: %+v", name, r)
		}
		if notes != "" && (!strings.Contains(notes, "image debian-12 ") || !strings.Contains(notes, `"S1"`) || !strings.Contains(notes, "look at its console")) {
			t.Errorf("%s: %q", name, notes)
		}
	}
}
