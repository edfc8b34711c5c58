package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func TestARamdiskAdvertisesItsDrivers(t *testing.T) {
	want := map[string]string{"bc.dev/driver.ramdisk": "1.0.0", "bc.dev/driver-kind.ramdisk.inspect": "1",
		"bc.dev/driver.image-stream": "1.0.0", "bc.dev/driver-kind.image-stream.deploy": "1"}
	if got := labels(agentv1.RamdiskDrivers()); cmp.Diff(want, got) != "" {
		t.Error(cmp.Diff(want, got))
	}
}

// A ramdisk is a stranger with a token: what is malformed is left out, and the rest bounded.
func TestWhatARamdiskMayAdvertise(t *testing.T) {
	many := map[string][]string{}
	for i := range 100 {
		many[fmt.Sprintf("kind%d", i)] = nil
	}
	var crowd []agentv1.Advertised
	for i := range 100 {
		crowd = append(crowd, agentv1.Advertised{ID: fmt.Sprintf("d%d", i), Version: "1"})
	}
	for name, c := range map[string]struct {
		in   []agentv1.Advertised
		want int
	}{
		"an id with dots":          {[]agentv1.Advertised{{ID: "a.b", Version: "1"}}, 0},
		"an id with another label": {[]agentv1.Advertised{{ID: "x=1\nbc.dev/cap.y", Version: "1"}}, 0},
		"a version of lines":       {[]agentv1.Advertised{{ID: "x", Version: "1\n2"}}, 0},
		"a long version":           {[]agentv1.Advertised{{ID: "x", Version: strings.Repeat("1", 65)}}, 0},
		"a kind in capitals":       {[]agentv1.Advertised{{ID: "x", Version: "1", Operations: map[string][]string{"Power": nil, "power": nil}}}, 2},
		"a long kind":              {[]agentv1.Advertised{{ID: "x", Version: "1", Operations: map[string][]string{strings.Repeat("k", 33): nil}}}, 1},
		"many kinds":               {[]agentv1.Advertised{{ID: "x", Version: "1", Operations: many}}, 1 + maxKinds},
		"many drivers":             {crowd, maxDrivers},
	} {
		if got := labels(c.in); len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
	}
}
