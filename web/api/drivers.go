package api

import (
	"regexp"

	"github.com/better-compute/bcd/app"
)

var kindRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

func (a *API) driverRoutes() []Route {
	return []Route{
		on(Route{ID: "drivers.list", Method: "GET", Path: "/api/v1/drivers", Permission: app.PermDriversRead,
			Summary: "List drivers, sorted by id and version, without any configuration.",
			Query:   []Param{{"kind", "string", "only drivers that serve this kind"}}, CLI: CLI{"driver", "list"}}, a.listDrivers),
	}
}

func (a *API) listDrivers(c *Call, _ none) (List[Driver], error) {
	kind := c.Query.Get("kind")
	if kind != "" && !kindRE.MatchString(kind) {
		return List[Driver]{}, app.Invalid("kind", "is no driver kind").Do("use lower-case letters, digits and hyphens")
	}
	return list(a.Drivers.ListDrivers(c, kind))
}
