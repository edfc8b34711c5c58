package drivers

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/better-compute/bcd/app"
)

// CheckProfile holds a hardware profile against the registry: its form, that its drivers exist, serve their kinds and take
// their configurations, and that its steps can run. The error joins every problem, each with its field; warnings name
// drivers that are down. What depends on a machine is checked when it is bound.
func (r *Registry) CheckProfile(p *app.Profile) (warnings []string, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(p.Drivers)) {
		b := p.Drivers[kind]
		warning, err := r.checkBinding(kind, b, false)
		if err == nil && slices.Contains(bmcKinds, kind) && !isEmpty(b.Config) && addressOf(b.Config) == "" {
			err = app.Invalid("drivers."+kind+".config", "the driver %q needs an address", b.Driver).
				Do("leave the configuration out: machines whose BMC has this driver keep their own address")
		}
		errs = append(errs, err)
		if warning != "" && !slices.Contains(warnings, warning) {
			warnings = append(warnings, warning)
		}
	}
	for _, list := range []struct {
		name  string
		steps []app.ProfileStep
	}{{"commission", p.Steps.Commission}, {"beforeWrite", p.Steps.BeforeWrite}, {"afterWrite", p.Steps.AfterWrite}} {
		for i, s := range list.steps {
			err := r.checkStep(p, s, fmt.Sprintf("steps.%s.%d", list.name, i))
			if e, ok := app.AsError(err); ok && e.Code == app.Unavailable { // a driver that is down may come back
				err = nil
				if !slices.Contains(warnings, e.Message) {
					warnings = append(warnings, e.Message)
				}
			}
			errs = append(errs, err)
		}
	}
	return warnings, errors.Join(errs...)
}

// OwnSteps are the steps of profiles that act through code of the appliance, not through one driver.invoke.
var OwnSteps = []string{"power.setPower", "management.setBootDevice", "media.insert", "media.eject"}

// checkStep plans a step for a machine that is bound by the profile alone. That such a machine has no driver for the
// concern says nothing: its BMC may bind one.
func (r *Registry) checkStep(p *app.Profile, s app.ProfileStep, field string) error {
	if slices.Contains(OwnSteps, s.Step) {
		return nil
	}
	_, err := r.PlanStep(&app.Machine{Drivers: p.Drivers}, s)
	e, ok := app.AsError(err)
	if !ok {
		return err
	}
	concern, _ := s.Parts()
	if bound := p.Drivers[concern].Driver != ""; !bound && slices.Contains(append([]string{"inspect"}, bmcKinds...), concern) &&
		(e.Reason == ReasonNoDriver || e.Reason == ReasonAmbiguous) {
		return nil
	}
	return e.At(field)
}
