package drivers

import (
	"context"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// Needs are the drivers that a machine's workflow may call on the site.
type Needs struct {
	Drivers []string // ids that the machine is bound to, or is bound to once it is free
	Kinds   []string // of its profile's steps that are bound to none: whatever driver serves them is called
}

// Needs tells what a machine's workflow may call: by its BMC, its bindings of every kind, and its hardware profile. A profile
// that is not to be had adds nothing: the step that needs it finds that out.
func (r *Registry) Needs(ctx context.Context, m *app.Machine) Needs {
	ids, kinds := map[string]bool{}, map[string]bool{}
	if m.BMC != nil {
		ids[m.BMC.Driver] = true
	}
	for _, b := range m.Drivers {
		ids[b.Driver] = true
	}
	profile, err := r.ProfileFor(ctx, m)
	if err != nil || profile == nil {
		return Needs{sortedSet(ids), nil}
	}
	for kind, b := range profile.Drivers {
		if m.Drivers[kind].Layer != LayerMachine {
			ids[b.Driver] = true
		}
	}
	for _, s := range slices.Concat(profile.Steps.Commission, profile.Steps.BeforeWrite, profile.Steps.AfterWrite) {
		kind, _ := s.Parts()
		_, bound := profile.Drivers[kind]
		if _, own := m.Drivers[kind]; !own && !bound && (s.On == "" || s.On == driver.RunsOnSite) {
			kinds[kind] = true
		}
	}
	return Needs{sortedSet(ids), sortedSet(kinds)}
}

// sortedSet lists the members of a set, without "".
func sortedSet(set map[string]bool) (out []string) {
	for s := range set {
		if s != "" {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// Awaits names the first of what is needed that one of the plugins starting now may bring: of a driver that a plugin serves
// or served, that plugin; of one that nobody ever served, any of them. "" means that no start changes anything.
func (r *Registry) Awaits(n Needs, starting []string) string {
	if len(starting) == 0 {
		return ""
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, id := range n.Drivers {
		if e := r.activeLocked(id); e == nil || !e.up && slices.Contains(starting, e.plugin) {
			return id
		}
	}
	for _, kind := range n.Kinds {
		if r.awaitsKindLocked(kind, starting) {
			return kind
		}
	}
	return ""
}

// awaitsKindLocked is Awaits of a kind. mu must be held.
func (r *Registry) awaitsKindLocked(kind string, starting []string) bool {
	known, late := false, false
	for id := range r.idsLocked() {
		e := r.activeLocked(id)
		if !e.driver.Has(kind) || e.driver.RunsOn() != driver.RunsOnSite {
			continue
		}
		if e.up {
			return false
		}
		known, late = true, late || slices.Contains(starting, e.plugin)
	}
	return late || !known
}
