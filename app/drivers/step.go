package drivers

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

// The reasons of a step that finds no driver.
const (
	ReasonNoDriver  = "driver-not-found"
	ReasonAmbiguous = "ambiguous-driver"
)

// StepCall is what a profile's step asks of a driver. Driver and Config are the machine's binding of the concern; without
// one Driver is "" and the one driver that serves the concern is picked when the call is made.
type StepCall struct {
	Concern   string
	Operation string
	On        string          // driver.RunsOnSite or driver.RunsOnRamdisk
	With      json.RawMessage // as the profile has it
	Driver    string
	Config    json.RawMessage
}

// PlanStep makes a step's call for a machine, and refuses what cannot work before anything happens: a place where no driver
// runs, no driver or several, an operation that the driver does not serve, arguments that do not fit.
func (r *Registry) PlanStep(m *app.Machine, s app.ProfileStep) (StepCall, error) {
	c := StepCall{On: s.On, With: s.With}
	c.Concern, c.Operation = s.Parts()
	if c.On == "" {
		c.On = driver.RunsOnSite
	}
	if c.On != driver.RunsOnSite && c.On != driver.RunsOnRamdisk {
		return c, app.Errorf(app.Unsupported, "role-unsupported", "%s cannot run on %q", s.Step, c.On).At(s.Step).Do("use site or ramdisk")
	}
	if err := stepForm(c, s.Step); err != nil {
		return c, err
	}
	b, err := stepBinding(m, c)
	if err != nil {
		return c, err
	}
	c.Driver, c.Config = b.Driver, b.Config
	e, err := r.stepDriver(c)
	if err != nil {
		return c, err
	}
	if c.On == driver.RunsOnSite {
		if err := r.here(e.driver.ID(), c.Concern, reasonNotServed); err != nil {
			return c, err
		}
	}
	if serves, known := r.serves(e.driver.ID(), c.Concern, c.Operation); known && !serves {
		return c, unsupported(s.Step, "the driver %q does not serve %s", e.driver.ID(), s.Step).Do("bind another driver for %s", c.Concern)
	}
	_, err = positional(c)
	return c, err
}

// stepForm refuses operations that are no steps: a password would stand in the profile and in every workflow made of it, a
// probe trusts whatever key a BMC shows, and nobody would read a byte stream.
func stepForm(c StepCall, step string) error {
	if slices.Contains(allowed[CommandRotate], step) {
		return app.Errorf(app.Unsupported, "step-unsupported", "%s is no step: its password must not stand in a hardware profile", step).At(step).
			Do("rotate the credential by itself: bcd machine rotate-credential")
	}
	if step == "management.probe" {
		return app.Errorf(app.Unsupported, "step-unsupported", "%s is no step: a person accepts the key that it shows", step).At(step).Do("test the BMC by itself: bcd machine test-bmc")
	}
	kind, _ := driver.LookupKind(c.Concern)
	if op, _ := kind.Operation(c.Operation); op.Stream {
		return app.Errorf(app.Unsupported, "step-unsupported", "%s is no step: it opens a byte stream", step).At(step).Do("leave it out")
	}
	return nil
}

// stepBinding is the machine's binding of a step's concern; an empty one when it has none. On the site, inspection is the
// BMC driver's: the binding names the driver that inspects from inside.
func stepBinding(m *app.Machine, c StepCall) (app.Binding, error) {
	if c.Concern == "inspect" && c.On == driver.RunsOnSite && m.BMC != nil {
		config, err := connection(m.BMC)
		return app.Binding{Driver: m.BMC.Driver, Config: config}, err
	}
	return m.Drivers[c.Concern], nil
}

// stepDriver finds the driver of a call: the bound one, or the one that serves the concern where the step runs.
func (r *Registry) stepDriver(c StepCall) (*entry, error) {
	if c.Driver != "" {
		e := r.active(c.Driver)
		switch {
		case e == nil || !e.driver.Has(c.Concern):
			return nil, app.Errorf(app.Unsupported, ReasonNoDriver, "no driver %q serves %s", c.Driver, c.Concern).Do("choose one of: %s", r.choices(c.Concern))
		case e.driver.RunsOn() != c.On:
			return nil, app.Errorf(app.Unsupported, "role-unsupported", "the driver %q runs on %s, not on %s", c.Driver, e.driver.RunsOn(), c.On).
				Do("let the step run on: %s", e.driver.RunsOn())
		case e.plugin != "" && c.On != driver.RunsOnSite:
			return nil, noPluginThere(c.Driver)
		}
		return e, nil
	}
	var found []*entry
	r.mu.RLock()
	for id := range r.idsLocked() {
		if e := r.activeLocked(id); e.driver.Has(c.Concern) && e.driver.RunsOn() == c.On {
			found = append(found, e)
		}
	}
	r.mu.RUnlock()
	switch {
	case len(found) == 0:
		wayOut := "install a plugin that does, and bind it"
		if other := driver.RunsOnRamdisk; c.On != other && r.servedOn(c.Concern, other) {
			wayOut = "let the step run on: " + other
		}
		return nil, app.Errorf(app.Unsupported, ReasonNoDriver, "no driver on %s serves %s", c.On, c.Concern).Do("%s", wayOut)
	case len(found) > 1:
		var ids []string
		for _, e := range found {
			ids = append(ids, e.driver.ID())
		}
		return nil, app.Errorf(app.InvalidConfig, ReasonAmbiguous, "several drivers serve %s: %s", c.Concern, strings.Join(slices.Sorted(slices.Values(ids)), ", ")).
			Do("bind one of them for %s, in the hardware profile or on the machine", c.Concern)
	case found[0].plugin != "" && c.On != driver.RunsOnSite:
		return nil, noPluginThere(found[0].driver.ID())
	}
	return found[0], nil
}

// servedOn reports whether a driver that runs there has the kind.
func (r *Registry) servedOn(concern, where string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id := range r.idsLocked() {
		if e := r.activeLocked(id); e.driver.Has(concern) && e.driver.RunsOn() == where {
			return true
		}
	}
	return false
}

func noPluginThere(id string) error {
	return app.Errorf(app.Unsupported, "role-unsupported", "the driver %q is a plugin's, and the ramdisk runs no plugins", id).Do("use a plugin that runs on the site")
}

// positional brings a step's arguments to the form that drivers are sent: the positional array of a known operation's
// parameters, or the arguments as they are as the only one of an operation that nobody registered.
func positional(c StepCall) (json.RawMessage, error) {
	kind, _ := driver.LookupKind(c.Concern)
	op, known := kind.Operation(c.Operation)
	args := []json.RawMessage{}
	switch {
	case known:
		list, err := op.Positional(c.With)
		if err != nil {
			return nil, Error(err)
		}
		args = append(args, list...)
	case !isEmpty(c.With):
		args = append(args, c.With)
	}
	return json.Marshal(args)
}

// stepTries bounds the repeats of a step's call that is safe to repeat, with stepPause before each, doubling.
const (
	stepTries = 3
	stepPause = time.Second
)

// InvokeStep makes a step's call from this site and gives its result. The context carries the command's deadline. A call is
// repeated only when its driver lists the operation as retry-safe and says that another try may help.
func (h *Handle) InvokeStep(ctx context.Context, c StepCall) (json.RawMessage, error) {
	e, err := h.r.stepDriver(c)
	if err != nil {
		return nil, err
	}
	args, err := positional(c)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		out, err := h.step(ctx, e, c, args)
		failed, _ := app.AsError(err)
		if err == nil || try == stepTries || failed == nil || !failed.Retry || !e.driver.IsRetrySafe(c.Concern, c.Operation) {
			return out, err
		}
		h.r.log.Info("a step's call is repeated", "operation", c.Concern+"."+c.Operation, "driver", e.driver.ID(), "error", err)
		select {
		case <-time.After(stepPause << (try - 1)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (h *Handle) step(ctx context.Context, e *entry, c StepCall, args json.RawMessage) (json.RawMessage, error) {
	if err := h.r.here(e.driver.ID(), c.Concern, reasonNotHere); err != nil {
		return nil, err
	}
	b, err := h.bindTo(ctx, c.Concern, app.Binding{Driver: e.driver.ID(), Config: c.Config})
	if err != nil {
		return nil, Error(err)
	}
	return h.r.invoke(ctx, b, driver.Call{Kind: c.Concern, Operation: c.Operation, Config: b.config, Args: args}, h.o)
}

// attemptOf takes workflow and step out of an attempt's key, wf:WORKFLOW:STEP#ATTEMPT.
func attemptOf(key string) (workflow, step string) {
	rest, ok := strings.CutPrefix(key, "wf:")
	if !ok {
		return "", ""
	}
	workflow, rest, _ = strings.Cut(rest, ":")
	step, _, _ = strings.Cut(rest, "#")
	return workflow, step
}

// use tells the vault for whom secrets are opened.
func (h *Handle) use(ctx context.Context) context.Context {
	workflow, step := attemptOf(h.o.Key)
	return secret.For(ctx, secret.Use{MachineID: h.m.ID, WorkflowID: workflow, StepID: step})
}
