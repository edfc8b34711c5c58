package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
)

// QueryInput names what is asked of a BMC.
type QueryInput struct {
	Operation string `json:"operation" doc:"power.getPower, inspect.inspect, bios.getSettings, firmware.components or raid.getLayout"`
}

// QueryAnswer is what the BMC's driver said.
type QueryAnswer struct {
	Result json.RawMessage `json:"result"`
}

func (a *API) query(c *Call, in QueryInput) (QueryAnswer, error) {
	if !slices.Contains(drivers.Queries(), in.Operation) {
		return QueryAnswer{}, app.Invalid("operation", "is no operation that only looks").Do("use one of: %s", strings.Join(drivers.Queries(), ", "))
	}
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return QueryAnswer{}, err
	}
	raw, err := a.Service.Query(c, c.actor(), m, in.Operation)
	return QueryAnswer{raw}, err
}

func (a *API) bmcOperations(c *Call, _ none) (List[app.BMCOperation], error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return List[app.BMCOperation]{}, err
	}
	limit, err := c.limit(100)
	if err != nil {
		return List[app.BMCOperation]{}, err
	}
	var before int64
	if s := c.Query.Get("before"); s != "" {
		if before, err = strconv.ParseInt(s, 10, 64); err != nil || before < 1 {
			return List[app.BMCOperation]{}, app.Invalid("before", "is no id of an operation")
		}
	}
	out, err := list(a.Operations.ListBMCOperations(c, m.ID, before, limit))
	if len(out.Items) == limit {
		out.Next = fmt.Sprint(out.Items[limit-1].ID)
	}
	return out, err
}
