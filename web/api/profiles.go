package api

import (
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
)

// ProfileInput is a hardware profile as an operator describes it.
type ProfileInput struct {
	Description string                 `json:"description,omitempty" doc:"text for people"`
	Drivers     map[string]app.Binding `json:"drivers,omitempty" doc:"drivers by kind"`
	KernelArgs  string                 `json:"kernelArgs,omitempty" doc:"kernel arguments for ramdisk and installed system"`
	KexecOK     bool                   `json:"kexecProven,omitempty" doc:"start the installed system by kexec"`
}

// PoolInput is a pool as an operator describes it.
type PoolInput struct {
	Description     string `json:"description,omitempty" doc:"text for people"`
	HardwareProfile string `json:"hardwareProfile,omitempty" doc:"hardware profile of machines in it"`
}

func (a *API) profileRoutes() []Route {
	read, write := app.PermProfilesRead, app.PermProfilesWrite
	return []Route{
		on(Route{ID: "profiles.list", Method: "GET", Path: "/api/v1/profiles", Permission: read, Summary: "List hardware profiles.", CLI: CLI{"profile", "list"}},
			func(c *Call, _ none) (List[app.Profile], error) { return list(a.Profiles.ListProfiles(c)) }),
		on(Route{ID: "profiles.get", Method: "GET", Path: "/api/v1/profiles/{name}", Permission: read, Summary: "Show one hardware profile.", CLI: CLI{"profile", "show"}},
			func(c *Call, _ none) (*app.Profile, error) { return a.Profiles.Profile(c, c.Path["name"]) }),
		on(Route{ID: "profiles.put", Method: "PUT", Path: "/api/v1/profiles/{name}", Permission: write, Summary: "Create or replace a hardware profile.", CLI: CLI{"profile", "set"}}, a.putProfile),
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

func (a *API) putProfile(c *Call, in ProfileInput) (*app.Profile, error) {
	p := &app.Profile{Name: c.Path["name"], Description: in.Description, Drivers: in.Drivers, KernelArgs: in.KernelArgs, KexecOK: in.KexecOK, Updated: a.Now().UTC()}
	if err := app.ValidName("name", p.Name); err != nil {
		return nil, err
	}
	if err := app.ValidLine("description", p.Description, 500); err != nil {
		return nil, err
	}
	if err := app.ValidLine("kernelArgs", p.KernelArgs, 1024); err != nil {
		return nil, err
	}
	if err := validBindings(p.Drivers); err != nil {
		return nil, err
	}
	return p, a.noted(c, "profile", "saved", func(ctx context.Context, _ string) error { return a.Profiles.PutProfile(ctx, p) })
}

func validBindings(m map[string]app.Binding) error {
	for kind, b := range m {
		if !kindRE.MatchString(kind) {
			return app.Invalid("drivers", "%q is no driver kind", kind).Do("use lower-case letters, digits and hyphens")
		}
		if err := app.ValidName("drivers."+kind+".driver", b.Driver); err != nil {
			return err
		}
		var object map[string]json.RawMessage
		if len(b.Config) > maxOptions || len(b.Config) > 0 && (json.Unmarshal(b.Config, &object) != nil || object == nil) {
			return app.Invalid("drivers."+kind+".config", "is not a JSON object of at most %d bytes", maxOptions)
		}
	}
	if len(m) > maxDrivers {
		return app.Invalid("drivers", "lists more than %d kinds", maxDrivers)
	}
	return nil
}

func (a *API) putPool(c *Call, in PoolInput) (*app.Pool, error) {
	p := &app.Pool{Name: c.Path["name"], Description: in.Description, HardwareProfile: in.HardwareProfile, Updated: a.Now().UTC()}
	if err := app.ValidName("name", p.Name); err != nil {
		return nil, err
	}
	if err := app.ValidLine("description", p.Description, 500); err != nil {
		return nil, err
	}
	if p.HardwareProfile != "" {
		if _, err := a.Profiles.Profile(c, p.HardwareProfile); err != nil {
			return nil, unknown(err, "hardwareProfile", p.HardwareProfile)
		}
	}
	return p, a.noted(c, "pool", "saved", func(ctx context.Context, _ string) error { return a.Profiles.PutPool(ctx, p) })
}
