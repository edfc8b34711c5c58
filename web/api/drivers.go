package api

import (
	"regexp"

	"github.com/better-compute/bcd/app"
)

var kindRE = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// DriverList is the drivers, and the labels that the active ones give the appliance.
type DriverList struct {
	Items  []Driver          `json:"items"`
	Labels map[string]string `json:"labels"` // such as bc.dev/driver.redfish=1.0.0, of drivers of every kind
}

// DriverPick names a version of a driver.
type DriverPick struct {
	Version *string `json:"version,omitempty" doc:"the version to use, \"\" for the highest"`
}

// maxVersion bounds a version, in bytes: three numbers of nine digits, a pre-release and a build of 64 bytes each.
const maxVersion = 160

func (a *API) driverRoutes() []Route {
	return []Route{
		on(Route{ID: "drivers.list", Method: "GET", Path: "/api/v1/drivers", Permission: app.PermDriversRead,
			Summary: "List drivers, sorted by id and version, without any configuration.",
			Query:   []Param{{"kind", "string", "only drivers that serve this kind"}}, CLI: CLI{"driver", "list"}}, a.listDrivers),
		on(Route{ID: "drivers.pick", Method: "PUT", Path: "/api/v1/drivers/{id}/active", Permission: app.PermPluginsWrite,
			Summary: "Use one version of a driver from now on; an empty version goes back to the highest.", CLI: CLI{"driver", "pick"}, Args: []string{"version"}}, a.pickDriver),
	}
}

func (a *API) listDrivers(c *Call, _ none) (DriverList, error) {
	kind := c.Query.Get("kind")
	if kind != "" && !kindRE.MatchString(kind) {
		return DriverList{}, app.Invalid("kind", "is no driver kind").Do("use lower-case letters, digits and hyphens")
	}
	l, err := list(a.Drivers.ListDrivers(c, kind))
	if err != nil {
		return DriverList{}, err
	}
	return DriverList{l.Items, a.Drivers.SiteLabels(c)}, nil
}

func (a *API) pickDriver(c *Call, in DriverPick) (none, error) {
	if in.Version == nil {
		return none{}, app.Invalid("version", "is missing").Do("name a version, or \"\" for the highest")
	}
	if err := app.ValidLine("version", *in.Version, maxVersion); err != nil {
		return none{}, err
	}
	return none{}, a.Drivers.PickDriver(c, c.actor(), c.Path["id"], *in.Version)
}

// DriverProblem is something that does not hold of a machine's drivers.
type DriverProblem struct {
	Kind   string     `json:"kind,omitempty"`   // absent: of all its bindings
	Driver string     `json:"driver,omitempty"` // that the site does not have now
	Error  *app.Error `json:"error"`
}

func (a *API) driverProblems(c *Call, _ none) (List[DriverProblem], error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	out := List[DriverProblem]{Items: []DriverProblem{}}
	if err != nil {
		return out, err
	}
	for _, p := range a.Bindings.Of(m) {
		out.Items = append(out.Items, DriverProblem{p.Kind, p.Driver, p.Error})
	}
	return out, nil
}
