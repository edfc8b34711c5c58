package drivers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// The reasons of a driver that the site does not have: before a workflow starts, and right before a call.
const (
	reasonNotServed = "bmc-driver-unsupported"
	reasonNotHere   = "unsupported-driver"
)

// advertised are the labels that the active version of a driver gives the site; none while it is down, runs elsewhere, or is
// not registered.
func (r *Registry) advertised(id string) map[string]string {
	if e := r.active(id); e != nil && e.onSite() {
		return Labels(e.driver)
	}
	return nil
}

// onSite reports whether a driver runs in this process or in a plugin of it, and is up.
func (e *entry) onSite() bool { return e.up && e.driver.RunsOn() == driver.RunsOnSite }

// here holds a call of a kind against the site's labels: the driver must be advertised as one of that kind. A driver that is
// registered but down is late: the error is UNAVAILABLE and worth another try. Anything else is UNSUPPORTED with the reason.
func (r *Registry) here(id, kind, reason string) error {
	labels := r.advertised(id)
	if _, has := labels[LabelPrefix+"driver-kind."+id+"."+kind]; has {
		return nil
	}
	e := r.active(id)
	switch {
	case e == nil:
		return app.Errorf(app.Unsupported, reason, "no driver %q runs on this site", id).Do("install its plugin, or bind another driver for %s", kind)
	case e.driver.RunsOn() != driver.RunsOnSite:
		return app.Errorf(app.Unsupported, reason, "the driver %q runs on %s, not on the site", id, e.driver.RunsOn()).Do("bind a driver of the site for %s", kind)
	case !e.up:
		return down(id, e)
	case !e.driver.Has(kind):
		return app.Errorf(app.Unsupported, reason, "the driver %q does not serve %s", id, kind).Do("bind another driver for %s", kind)
	}
	return nil // of a kind that labels leave out
}

// down is the error of a driver whose plugin does not run or cannot work now.
func down(id string, e *entry) *app.Error {
	return app.Errorf(app.Unavailable, driver.CodeUnavailable, "the driver %s is unavailable: %s", id, e.reason).Do("see its state under Drivers").Retryable()
}

// Lacks tells what a machine is bound to that the site does not have now, by kind. What its ramdisk serves is not looked for
// here.
func (r *Registry) Lacks(m *app.Machine) []Problem {
	var out []Problem
	look := func(kind, id string) {
		if err := r.here(id, kind, reasonNotServed); err != nil {
			e, _ := app.AsError(err)
			out = append(out, Problem{MachineID: m.ID, Machine: m.Name, Kind: kind, Driver: id, Error: e})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(m.Drivers)) {
		id := m.Drivers[kind].Driver
		if e := r.active(id); e == nil || e.driver.RunsOn() != driver.RunsOnRamdisk || slices.Contains(bmcKinds, kind) {
			look(kind, id)
		}
	}
	if m.BMC != nil && m.Drivers["inspect"].Driver != m.BMC.Driver {
		if e := r.active(m.BMC.Driver); e == nil || e.driver.Has("inspect") { // a driver that cannot inspect is not asked to
			look("inspect", m.BMC.Driver)
		}
	}
	return slices.CompactFunc(slices.SortedStableFunc(slices.Values(out), func(a, b Problem) int { return cmp.Compare(a.Driver, b.Driver) }),
		func(a, b Problem) bool { return a.Driver == b.Driver && a.Error.Message == b.Error.Message })
}
