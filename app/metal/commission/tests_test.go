package commission

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func TestChooseTests(t *testing.T) {
	acme := &app.Profile{Name: "acme", Commissioning: []app.TestSpec{
		{Test: "disk-read", With: map[string]float64{"minMBps": 150}}, {Test: "script", Title: "One", Script: "true"}, {Test: "script", Title: "Two", Script: "true"},
	}}
	for name, c := range map[string]struct {
		profile *app.Profile
		only    []string
		want    string // titles; "!" and a word of the refusal
	}{
		"no profile":                {nil, nil, "Look at the network links, Ask the disks for their health"},
		"profile that says nothing": {&app.Profile{}, nil, "Look at the network links, Ask the disks for their health"},
		"profile that wants none":   {&app.Profile{Commissioning: []app.TestSpec{}}, nil, ""},
		"profile's":                 {acme, nil, "Read the disks, One, Two"},
		"none asked for":            {acme, []string{"none"}, ""},
		"by name":                   {acme, []string{"cpu", "disk-read"}, "Let every processor compute, Read the disks"},
		"all scripts":               {acme, []string{"script"}, "One, Two"},
		"no script":                 {nil, []string{"script"}, "!no script"},
		"unknown":                   {nil, []string{"burn"}, "!no commissioning test"},
	} {
		specs, err := choose(c.profile, c.only)
		var titles []string
		for _, s := range specs {
			titles = append(titles, s.Name())
			if s.Test == "disk-read" && s.With["minMBps"] != 150 {
				t.Errorf("%s: the profile's limits are lost: %+v", name, s)
			}
		}
		if refusal, refused := strings.CutPrefix(c.want, "!"); refused {
			if e, ok := app.AsError(err); !ok || !strings.Contains(e.Message, refusal) || e.WayOut == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := strings.Join(titles, ", "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestPlanTests(t *testing.T) {
	script := "echo $((6 * 7))\n"
	steps, err := planTests(&app.Profile{Name: "acme", Commissioning: []app.TestSpec{{Test: "cpu", With: map[string]float64{"seconds": 5}, Required: true}, {Test: "script", Script: script}}}, nil)
	if err != nil || len(steps) != 3 {
		t.Fatalf("%+v, %v", steps, err)
	}
	var order agentv1.Test
	if err := json.Unmarshal(steps[1].Payload, &order); err != nil || order.Script != script || order.Seconds != 600 {
		t.Errorf("%+v, %v", order, err)
	}
	if !steps[0].RetrySafe || steps[0].Destructive || steps[1].RetrySafe || !steps[1].Destructive {
		t.Error("only what an operator wrote must not run twice by itself")
	}
	if changes(steps[:1]) || !changes(steps) {
		t.Error("a script may change a locked machine, the other tests do not")
	}
	var w weighing
	if err := json.Unmarshal(steps[2].Payload, &w); err != nil || w.Profile != "acme" || !slices.Equal(w.Tests, []weight{{"test-0", "Let every processor compute", true}, {"test-1", "Run a script", false}}) {
		t.Errorf("%+v, %v", w, err)
	}
	if steps, err := planTests(nil, []string{"none"}); len(steps) > 0 || err != nil {
		t.Errorf("%+v, %v", steps, err)
	}
}

func TestWhatFailsACommissioning(t *testing.T) {
	for _, c := range []struct {
		result   string
		skipped  []string
		required bool
		fails    bool
	}{
		{agentv1.TestPassed, nil, false, false},
		{agentv1.TestPassed, nil, true, false},
		{agentv1.TestPassed, []string{"vda: no health"}, false, false},
		{agentv1.TestPassed, []string{"vda: no health"}, true, true},
		{agentv1.TestNotRun, nil, false, false},
		{agentv1.TestNotRun, nil, true, true},
		{agentv1.TestFailed, nil, false, true},
		{agentv1.TestError, nil, false, true},
		{"", nil, false, true},
		{"excellent", nil, false, true},
	} {
		why := fails(weight{Title: "Read the disks", Required: c.required}, agentv1.TestResult{Result: c.result, Skipped: c.skipped, Message: "why"})
		if (why != "") != c.fails || c.fails && !strings.Contains(why, `"Read the disks"`) {
			t.Errorf("%+v: %q", c, why)
		}
	}
}
