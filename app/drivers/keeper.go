package drivers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Times and numbers of the Keeper.
const (
	liveTime   = time.Minute // of one machine's live checks
	liveAtOnce = 4           // machines whose live checks run at a time
	busyPause  = time.Minute // until machines that had a workflow are looked at again
	keeperPage = 500

	failingPause = 5 * time.Minute // until failed live checks are made again
)

// KeeperConfig is what a Keeper needs. Every field is required.
type KeeperConfig struct {
	Registry *Registry
	Machines app.MachineStore
	Record   func(app.Event)
	Log      *slog.Logger
}

// Problem is a binding of a machine that does not hold any more.
type Problem struct {
	MachineID string
	Machine   string // name
	Kind      string // "" when the bindings as a whole cannot be resolved
	Driver    string // that the site does not have now; "" when it is something else
	Error     *app.Error
	Live      bool // the driver's own check failed; else the binding itself is wrong
}

// Of tells what does not hold of one machine: bindings that do not resolve, drivers that the site does not have now, and
// checks that failed when they were last made.
func (k *Keeper) Of(m *app.Machine) []Problem {
	k.mu.Lock()
	out := slices.Clone(k.problems[m.ID])
	k.mu.Unlock()
	return append(out, k.cfg.Registry.Lacks(m)...)
}

// Lacks lists what machines are bound to that the site does not have now.
func (k *Keeper) Lacks(ctx context.Context) (out []Problem, err error) {
	err = k.each(ctx, func(m *app.Machine) error {
		if m.State != app.StateRetired {
			out = append(out, k.cfg.Registry.Lacks(m)...)
		}
		return nil
	})
	return out, err
}

// Keeper keeps the bindings of machines in line with hardware profiles, pools and drivers: it makes them, and makes them
// anew when one of those changes. Machines whose bindings no longer resolve keep the ones they have, and are listed.
type Keeper struct {
	cfg  KeeperConfig
	wake chan struct{}

	mu       sync.Mutex
	problems map[string][]Problem
}

// NewKeeper makes a Keeper.
func NewKeeper(cfg KeeperConfig) *Keeper {
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), problems: map[string][]Problem{}}
}

// Changed notes that a profile or pool was saved, or that a driver came, went, rose or fell.
func (k *Keeper) Changed() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Problems lists what does not hold, by machine.
func (k *Keeper) Problems() []Problem {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Problem
	for _, p := range k.problems {
		out = append(out, p...)
	}
	slices.SortFunc(out, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Kind, b.Kind)) })
	return out
}

// Bind makes a machine's bindings and labels, in m, of its BMC, profile and pool and its own overrides; nil keeps those it
// has. The drivers' live checks run too: one that fails is an error, or with force a warning; a driver that is down is a
// warning always, and a binding that cannot work is an error always.
func (k *Keeper) Bind(ctx context.Context, m *app.Machine, overrides map[string]app.Binding, force bool) (warnings []string, err error) {
	in := InputOf(m)
	if overrides != nil {
		in.Overrides = overrides
	}
	r, err := k.cfg.Registry.Resolve(ctx, in)
	if err != nil {
		return nil, err
	}
	m.Drivers = r.Bindings
	k.cfg.Registry.Label(m)
	ctx, cancel := context.WithTimeout(ctx, liveTime)
	defer cancel()
	warnings = r.Warnings
	failed := k.cfg.Registry.Validate(ctx, m)
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(failed)) {
		e := liveError(kind, failed[kind])
		switch {
		case e.Code == app.Unavailable && e.Reason == "unavailable": // Resolve has warned of it
		case force:
			warnings = append(warnings, e.Message)
		default:
			errs = append(errs, e)
		}
	}
	return warnings, errors.Join(errs...)
}

// liveError words the failure of a driver's own check.
func liveError(kind string, err error) *app.Error {
	e, ok := app.AsError(err)
	if !ok {
		e = app.Errorf(app.Unavailable, "driver-error", "%w", err)
	}
	out := app.Errorf(e.Code, e.Reason, "the driver's own check of %s failed: %s", kind, e.Message).At("drivers." + kind)
	if e.WayOut != "" {
		return out.Do("%s; or accept it as it is with force", e.WayOut)
	}
	return out.Do("accept it as it is with force, if you know better")
}

// CheckProfile holds a profile against the registry, as Registry.CheckProfile does, and against the machines it applies to:
// those whose bindings would no longer resolve are given.
func (k *Keeper) CheckProfile(ctx context.Context, p *app.Profile) (warnings []string, broken []Problem, err error) {
	if warnings, err = k.cfg.Registry.CheckProfile(p); err != nil {
		return warnings, nil, err
	}
	err = k.each(ctx, func(m *app.Machine) error {
		now, err := k.cfg.Registry.ProfileFor(ctx, m)
		if err != nil || now == nil || now.Name != p.Name {
			return nil // a profile that is missing is no fault of this one
		}
		if _, err := k.cfg.Registry.resolve(InputOf(m), p); err != nil {
			for _, e := range app.Problems(err) {
				broken = append(broken, Problem{MachineID: m.ID, Machine: m.Name, Error: e})
			}
		}
		return nil
	})
	return warnings, broken, err
}

// each calls f with every machine.
func (k *Keeper) each(ctx context.Context, f func(*app.Machine) error) error {
	for after := ""; ; {
		page, err := k.cfg.Machines.ListMachines(ctx, app.MachineFilter{After: after, Limit: keeperPage})
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := f(&page.Items[i]); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// Run looks at all machines, and again whenever a driver, a profile or a pool changed, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-k.wake:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		busy, err := k.Look(ctx)
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.Error("checking the bindings of machines", "error", err)
		}
		switch {
		case busy || err != nil:
			again.Reset(busyPause)
		case slices.ContainsFunc(k.Problems(), func(p Problem) bool { return p.Live }):
			again.Reset(failingPause)
		}
	}
}

// Look makes every machine's bindings anew and runs the live checks of those that changed, whose drivers did, or that failed
// before. busy is
// true when machines were left alone because a workflow runs on them.
func (k *Keeper) Look(ctx context.Context) (busy bool, err error) {
	seen := map[string]bool{}
	var live []app.Machine
	err = k.each(ctx, func(m *app.Machine) error {
		seen[m.ID] = true
		was := m.Labels
		moved, wait, err := k.renew(ctx, m)
		busy = busy || wait
		switch {
		case wait: // its turn comes when it is free
		case k.broken(m.ID):
			k.note(m, nil, true) // one problem is told, not what follows from it
		case moved || k.otherVersion(m, was) || k.failing(m.ID):
			live = append(live, *m)
		}
		return err
	})
	if err != nil {
		return busy, err
	}
	k.forget(seen)
	k.checkLive(ctx, live)
	return busy, ctx.Err()
}

// otherVersion reports whether one of a machine's drivers is of another version than the machine was bound to, by the labels
// that it had: a plugin that merely starts again is no reason to log in to every BMC.
func (k *Keeper) otherVersion(m *app.Machine, was map[string]string) bool {
	for _, b := range m.Drivers {
		d, err := k.cfg.Registry.Driver(b.Driver)
		if v := was[LabelPrefix+"driver."+b.Driver]; err == nil && v != "" && v != d.Version() {
			return true
		}
	}
	return false
}

// renew makes one machine's bindings anew. moved is true when they changed.
func (k *Keeper) renew(ctx context.Context, m *app.Machine) (moved, busy bool, err error) {
	r, rerr := k.cfg.Registry.Resolve(ctx, InputOf(m))
	if rerr != nil {
		e, ok := app.AsError(rerr)
		if !ok {
			return false, false, rerr
		}
		k.note(m, []Problem{{MachineID: m.ID, Machine: m.Name, Error: e}}, false)
		return false, false, nil
	}
	k.note(m, nil, false)
	next := *m
	next.Drivers = r.Bindings
	k.cfg.Registry.Label(&next)
	moved = !sameBindings(m.Drivers, next.Drivers)
	if !moved && maps.Equal(m.Labels, next.Labels) {
		return false, false, nil
	}
	if m.WorkflowID != "" {
		return false, true, nil
	}
	_, err = k.cfg.Machines.UpdateMachine(ctx, m.ID, func(now *app.Machine) error {
		if now.Version != m.Version {
			return errMoved
		}
		now.Drivers, now.Labels = next.Drivers, next.Labels
		return nil
	})
	switch {
	case errors.Is(err, errMoved):
		return false, true, nil
	case app.CodeOf(err) == app.NotFound:
		return false, false, nil
	case err == nil && moved:
		k.cfg.Record(app.Event{Time: k.cfg.Registry.cfg.Now().UTC(), Kind: "machine.bound", Level: "info", MachineID: m.ID, Actor: "system",
			Message: m.Name + " was bound to other drivers, because a hardware profile, a pool or a plugin changed"})
	}
	m.Drivers, m.Labels = next.Drivers, next.Labels
	return moved, false, err
}

// errMoved says that somebody else changed the machine meanwhile.
var errMoved = errors.New("the machine changed meanwhile")

func sameBindings(a, b map[string]app.Binding) bool {
	return maps.EqualFunc(a, b, func(x, y app.Binding) bool {
		return x.Driver == y.Driver && x.Layer == y.Layer && (len(x.Config)+len(y.Config) == 0 || jsonEqual(x.Config, y.Config))
	})
}

// note keeps the problems of one sort that a machine has now.
func (k *Keeper) note(m *app.Machine, now []Problem, live bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := slices.DeleteFunc(slices.Clone(k.problems[m.ID]), func(p Problem) bool { return p.Live == live })
	if kept = append(kept, now...); len(kept) == 0 {
		delete(k.problems, m.ID)
		return
	}
	k.problems[m.ID] = kept
}

// failing reports whether a driver's own check of the machine failed last.
func (k *Keeper) failing(machineID string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.problems[machineID], func(p Problem) bool { return p.Live })
}

// broken reports whether a machine's bindings do not resolve.
func (k *Keeper) broken(machineID string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.problems[machineID], func(p Problem) bool { return !p.Live })
}

func (k *Keeper) forget(all map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.problems, func(id string, _ []Problem) bool { return !all[id] })
}

// checkLive runs the drivers' own checks on machines, a few at a time.
func (k *Keeper) checkLive(ctx context.Context, machines []app.Machine) {
	turn := make(chan struct{}, liveAtOnce)
	var wg sync.WaitGroup
	for i := range machines {
		m := &machines[i]
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, liveTime)
			defer cancel()
			var found []Problem
			for kind, err := range k.cfg.Registry.Validate(ctx, m) {
				found = append(found, Problem{MachineID: m.ID, Machine: m.Name, Kind: kind, Error: liveError(kind, err), Live: true})
			}
			k.note(m, found, true)
		})
	}
	wg.Wait()
}
