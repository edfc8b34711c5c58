// Package baseline brings a machine to what its hardware profile says of firmware, BIOS settings and RAID volumes. Its
// steps run in a commissioning, through the drivers the machine is bound to: each looks first, changes only what differs,
// and one more step, after the machine has booted, reads all of it back.
package baseline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
)

const (
	kindFirmware = "baseline.firmware"
	kindBIOS     = "baseline.bios"
	kindRAID     = "baseline.raid"
	kindCheck    = "baseline.check"
)

// Budgets of the steps: flashing takes long, and controllers initialise volumes before they answer.
const (
	firmwareBudget = 2 * time.Hour
	raidBudget     = time.Hour
	biosBudget     = 10 * time.Minute
)

// want is what the profile says, as the workflow was planned.
type want struct {
	BIOS     map[string]json.RawMessage `json:"bios,omitempty"`
	RAID     *app.RAIDLayout            `json:"raid,omitempty"`
	Firmware []app.FirmwareBaseline     `json:"firmware,omitempty"`
}

// Steps plans them.
type Steps struct{ p *metal.Ports }

// New registers the steps.
func New(p *metal.Ports) *Steps {
	s := &Steps{p}
	f := p.Flows
	f.Register(workflow.Kind{Name: kindFirmware, Budget: firmwareBudget, Run: s.firmware, Check: s.settled(s.firmwareOff)})
	f.Register(workflow.Kind{Name: kindBIOS, Budget: biosBudget, Run: s.bios})
	f.Register(workflow.Kind{Name: kindRAID, Budget: raidBudget, Run: s.raid, Check: s.settled(s.raidOff)})
	f.Register(workflow.Kind{Name: kindCheck, Budget: biosBudget, Run: s.check})
	return s
}

// Plan gives the steps before the machine boots and those after it, for a profile; none when it says nothing. A machine
// whose drivers cannot do it is refused.
func (s *Steps) Plan(ctx context.Context, m *app.Machine, p *app.Profile) (before, after []workflow.Step, err error) {
	if p == nil || len(p.BIOS) == 0 && p.RAID == nil && len(p.Firmware) == 0 {
		return nil, nil, nil
	}
	w := want{p.BIOS, p.RAID, p.Firmware}
	if len(p.Firmware) > 0 {
		before = append(before, step("firmware", "Bring firmware to its baseline", kindFirmware, w))
		err = s.p.Supports(ctx, m, "firmware.components", "firmware.update")
	}
	if len(p.BIOS) > 0 && err == nil {
		b := step("bios", "Change BIOS settings", kindBIOS, w)
		b.RetrySafe = true // the same settings once more change nothing
		before = append(before, b)
		err = s.p.Supports(ctx, m, "bios.getSettings", "bios.applySettings")
	}
	if p.RAID != nil && err == nil {
		before = append(before, step("raid", "Make the RAID volumes", kindRAID, w))
		err = s.p.Supports(ctx, m, "raid.getLayout", "raid.applyLayout")
	}
	check := step("baseline", "Read back firmware, settings and volumes", kindCheck, w)
	check.Destructive, check.RetrySafe = false, true
	return before, []workflow.Step{check}, err
}

// Changes reports whether a step changes the hardware of a machine, which a lock forbids.
func Changes(s workflow.Step) bool {
	return s.Kind == kindFirmware || s.Kind == kindBIOS || s.Kind == kindRAID
}

func step(id, title, kind string, w want) workflow.Step {
	raw, err := json.Marshal(w)
	if err != nil { // it came out of JSON
		panic(err)
	}
	return workflow.Step{ID: id, Title: title, Kind: kind, On: workflow.OnSite, Lane: workflow.LaneProvision, Destructive: true, Payload: raw}
}

// open reads what is wanted and makes the machine's drivers callable.
func (s *Steps) open(ctx context.Context, c workflow.StepContext) (want, *drivers.Handle, error) {
	var w want
	if err := json.Unmarshal(c.Command().Payload, &w); err != nil {
		return w, nil, err
	}
	m, err := s.p.Machine(ctx, c)
	if err != nil {
		return w, nil, err
	}
	return w, s.p.Drivers.For(m, drivers.Options{Key: c.Command().Key, TraceParent: c.Command().TraceParent, OnProgress: func(p driver.Progress) {
		c.Progress(workflow.Progress{Phase: metal.Clip(p.Phase), Message: metal.Clip(p.Message), Done: p.Done, Total: p.Total})
	}}), nil
}

// settled makes the check of a step whose effect can be read: nothing off means that it happened. What is off may be under
// way still, so it is never said that nothing happened.
func (s *Steps) settled(off func(ctx context.Context, w want, h *drivers.Handle) ([]string, error)) func(context.Context, workflow.StepContext) (workflow.Verdict, any, error) {
	return func(ctx context.Context, c workflow.StepContext) (workflow.Verdict, any, error) {
		w, h, err := s.open(ctx, c)
		if err != nil {
			return workflow.Unknown, nil, err
		}
		left, err := off(ctx, w, h)
		if err != nil || len(left) > 0 {
			return workflow.Unknown, nil, err
		}
		return workflow.Happened, nil, nil
	}
}

// check reads everything back.
func (s *Steps) check(ctx context.Context, c workflow.StepContext) (any, error) {
	w, h, err := s.open(ctx, c)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, off := range []func(context.Context, want, *drivers.Handle) ([]string, error){s.firmwareOff, s.biosOff, s.raidOff} {
		more, err := off(ctx, w, h)
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	if len(left) > 0 {
		return nil, app.Errorf(app.Conflict, "not-applied", "the machine has booted and still differs from its profile: %s", strings.Join(left, "; ")).
			Do("look at the BMC's own job list, then retry")
	}
	return nil, nil
}

// biosOff lists the settings that differ. One that the machine does not have is an error.
func (s *Steps) biosOff(ctx context.Context, w want, h *drivers.Handle) ([]string, error) {
	if len(w.BIOS) == 0 {
		return nil, nil
	}
	differ, err := settings(ctx, w, h)
	var out []string
	for name := range differ {
		out = append(out, "BIOS setting "+name)
	}
	slices.Sort(out)
	return out, err
}

func settings(ctx context.Context, w want, h *drivers.Handle) (map[string]any, error) {
	raw, err := h.Query(ctx, "bios.getSettings")
	if err != nil {
		return nil, err
	}
	var have map[string]any
	if err := decode("bios.getSettings", raw, &have); err != nil {
		return nil, err
	}
	differ := map[string]any{}
	for name, v := range w.BIOS {
		var value any
		if err := decode("the profile", v, &value); err != nil {
			return nil, err
		}
		now, there := have[name]
		if !there {
			return nil, app.Errorf(app.InvalidConfig, "unknown-setting", "the machine has no BIOS setting %q", name).
				At("biosSettings." + name).Do("see what it has: bcd machine query MACHINE bios.getSettings")
		}
		if !reflect.DeepEqual(now, value) && fmt.Sprint(now) != fmt.Sprint(value) {
			differ[name] = value
		}
	}
	return differ, nil
}

func (s *Steps) bios(ctx context.Context, c workflow.StepContext) (any, error) {
	w, h, err := s.open(ctx, c)
	if err != nil {
		return nil, err
	}
	differ, err := settings(ctx, w, h)
	if err != nil {
		return nil, err
	}
	if len(differ) == 0 {
		c.Log("all %d BIOS settings are as they shall be", len(w.BIOS))
		return driver.BIOSResult{}, nil
	}
	c.Log("changing %d of %d BIOS settings", len(differ), len(w.BIOS))
	return h.ApplyBIOS(ctx, differ)
}

// decode reads a driver's answer, keeping numbers as they are written.
func decode(what string, raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return app.Errorf(app.Unavailable, driver.CodeBMCError, "the answer of %s is not what the contract says: %w", what, err).Do("report it to the author of the driver")
	}
	return nil
}
