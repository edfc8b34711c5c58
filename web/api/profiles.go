package api

import (
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
)

// Bindings answers for hardware profiles and for the drivers that machines are bound to; *drivers.Keeper implements it.
type Bindings interface {
	// CheckProfile gives what is wrong with a profile, as an error that joins it all, the drivers that are down, and the
	// machines whose bindings it would break.
	CheckProfile(ctx context.Context, p *app.Profile) (warnings []string, broken []drivers.Problem, err error)
	// Bind makes a machine's bindings and labels, in m; nil overrides keep its own. With force a driver's own check may fail.
	Bind(ctx context.Context, m *app.Machine, overrides map[string]app.Binding, force bool) (warnings []string, err error)
	// Of tells what does not hold of a machine's bindings now.
	Of(m *app.Machine) []drivers.Problem
	// Changed is told that a profile or pool was saved.
	Changed()
}

// ProfileInput is a hardware profile as an operator describes it.
type ProfileInput struct {
	Description string                     `json:"description,omitempty" doc:"text for people"`
	Drivers     map[string]app.Binding     `json:"drivers,omitempty" doc:"drivers by kind: an id, or an object with driver and config"`
	BIOS        map[string]json.RawMessage `json:"biosSettings,omitempty" doc:"BIOS settings that commissioning sets, by attribute"`
	RAID        *app.RAIDLayout            `json:"raidLayout,omitempty"`
	Firmware    []app.FirmwareBaseline     `json:"firmwareBaseline,omitempty" doc:"firmware versions that commissioning brings"`
	Steps       app.ProfileSteps           `json:"steps,omitzero"`
	Tests       []app.TestSpec             `json:"commissioning,omitzero" doc:"tests that commissioning makes, in order; absent: link and smart, an empty list: none"`
	KernelArgs  string                     `json:"kernelArgs,omitempty" doc:"kernel arguments for ramdisk and installed system"`
	BootOrder   app.BootPolicy             `json:"bootOrder,omitempty" doc:"boot order of its machines: as-found or network-first; absent: as each BMC allows"`
	KexecOK     bool                       `json:"kexecProven,omitempty" doc:"start the installed system by kexec"`
}

// PoolInput is a pool as an operator describes it.
type PoolInput struct {
	Description string         `json:"description,omitempty" doc:"text for people"`
	Policy      app.PoolPolicy `json:"policy,omitzero"`
}

// ProfileCheck is what a profile would do, found out without saving it.
type ProfileCheck struct {
	Problems []*app.Error    `json:"problems"` // each with its field; a profile that has any is refused
	Warnings []string        `json:"warnings"` // drivers that are down
	Broken   []BrokenMachine `json:"broken"`   // machines that would keep their old bindings, because the new ones do not resolve
}

// BrokenMachine is a machine whose bindings do not resolve.
type BrokenMachine struct {
	Machine string     `json:"machine"`
	Error   *app.Error `json:"error"`
}

func (a *API) profileRoutes() []Route {
	read, write := app.PermProfilesRead, app.PermProfilesWrite
	return []Route{
		on(Route{ID: "profiles.list", Method: "GET", Path: "/api/v1/profiles", Permission: read, Summary: "List hardware profiles.", CLI: CLI{"profile", "list"}}, a.listProfiles),
		on(Route{ID: "profiles.get", Method: "GET", Path: "/api/v1/profiles/{name}", Permission: read, Summary: "Show one hardware profile.", CLI: CLI{"profile", "show"}}, a.getProfile),
		on(Route{ID: "profiles.put", Method: "PUT", Path: "/api/v1/profiles/{name}", Permission: write, Summary: "Create or replace a hardware profile.", CLI: CLI{"profile", "set"}}, a.putProfile),
		on(Route{ID: "profiles.check", Method: "POST", Path: "/api/v1/profiles/{name}/check", Permission: read,
			Summary: "Say what is wrong with a hardware profile, and which machines it would break, without saving it.", CLI: CLI{"profile", "check"}}, a.checkProfile),
		on(Route{ID: "profiles.delete", Method: "DELETE", Path: "/api/v1/profiles/{name}", Permission: write, Summary: "Delete a hardware profile that nothing uses.", CLI: CLI{"profile", "delete"}},
			func(c *Call, _ none) (none, error) {
				return none{}, a.noted(c, "profile", "deleted", a.Profiles.DeleteProfile)
			}),
		on(Route{ID: "pools.list", Method: "GET", Path: "/api/v1/pools", Permission: read, Summary: "List pools.", CLI: CLI{"pool", "list"}},
			func(c *Call, _ none) (List[app.Pool], error) { return list(a.Profiles.ListPools(c)) }),
		on(Route{ID: "pools.get", Method: "GET", Path: "/api/v1/pools/{name}", Permission: read, Summary: "Show one pool.", CLI: CLI{"pool", "show"}},
			func(c *Call, _ none) (*app.Pool, error) { return a.Profiles.Pool(c, c.Path["name"]) }),
		on(Route{ID: "pools.put", Method: "PUT", Path: "/api/v1/pools/{name}", Permission: write, Summary: "Create or replace a pool.", CLI: CLI{"pool", "set"}}, a.putPool),
		on(Route{ID: "pools.delete", Method: "DELETE", Path: "/api/v1/pools/{name}", Permission: write, Summary: "Delete a pool that no machine is in.", CLI: CLI{"pool", "delete"}},
			func(c *Call, _ none) (none, error) {
				return none{}, a.noted(c, "pool", "deleted", a.Profiles.DeletePool)
			}),
	}
}

// noted does something to the thing the path names, and records it.
func (a *API) noted(c *Call, noun, what string, do func(context.Context, string) error) error {
	if err := do(c, c.Path["name"]); err != nil {
		return err
	}
	return a.Bus.Record(c, app.Event{Kind: noun + "." + what, Actor: c.actor(), Message: noun + " " + c.Path["name"] + " was " + what})
}

// profile makes the profile that the path names of its description.
func (in ProfileInput) profile(c *Call) *app.Profile {
	p := &app.Profile{Name: c.Path["name"], Description: in.Description, Drivers: map[string]app.Binding{}, BIOS: in.BIOS, RAID: in.RAID, Firmware: in.Firmware, Steps: in.Steps, Commissioning: in.Tests,
		KernelArgs: in.KernelArgs, BootOrder: in.BootOrder, KexecOK: in.KexecOK, Updated: c.a.Now().UTC()}
	for kind, b := range in.Drivers {
		b.Layer = "" // it is said when a machine is bound
		p.Drivers[kind] = b
	}
	return p
}

func (a *API) putProfile(c *Call, in ProfileInput) (*app.Profile, error) {
	p := in.profile(c)
	if _, _, err := a.Bindings.CheckProfile(c, p); err != nil {
		return nil, firstProblem(err)
	}
	defer a.Bindings.Changed()
	return p, a.noted(c, "profile", "saved", func(ctx context.Context, _ string) error { return a.Profiles.PutProfile(ctx, p) })
}

// firstProblem is the one problem that is told where there is room for one; others are told after it.
func firstProblem(err error) error {
	if all := app.Problems(err); len(all) > 0 {
		return all[0]
	}
	return err
}

func (a *API) checkProfile(c *Call, in ProfileInput) (ProfileCheck, error) {
	out := ProfileCheck{Problems: []*app.Error{}, Warnings: []string{}, Broken: []BrokenMachine{}}
	warnings, broken, err := a.Bindings.CheckProfile(c, in.profile(c))
	out.Warnings = append(out.Warnings, warnings...)
	for _, b := range broken {
		out.Broken = append(out.Broken, BrokenMachine{b.Machine, b.Error})
	}
	for _, e := range app.Problems(err) {
		if e.Code == app.Internal {
			return out, err
		}
		out.Problems = append(out.Problems, e)
	}
	return out, nil
}

func (a *API) putPool(c *Call, in PoolInput) (*app.Pool, error) {
	p := &app.Pool{Name: c.Path["name"], Description: in.Description, Policy: in.Policy, Updated: a.Now().UTC()}
	if err := p.Validate(); err != nil {
		return nil, firstProblem(err)
	}
	if name := p.Policy.HardwareProfile; name != "" {
		if _, err := a.Profiles.Profile(c, name); err != nil {
			return nil, unknown(err, "policy.hardwareProfile", name)
		}
	}
	defer a.Bindings.Changed()
	return p, a.noted(c, "pool", "saved", func(ctx context.Context, _ string) error { return a.Profiles.PutPool(ctx, p) })
}

func (a *API) listProfiles(c *Call, _ none) (List[app.Profile], error) {
	out, err := list(a.Profiles.ListProfiles(c))
	for i := range out.Items {
		out.Items[i] = c.profile(out.Items[i])
	}
	return out, err
}

func (a *API) getProfile(c *Call, _ none) (*app.Profile, error) {
	p, err := a.Profiles.Profile(c, c.Path["name"])
	if err != nil {
		return nil, err
	}
	out := c.profile(*p)
	return &out, nil
}
