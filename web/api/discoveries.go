package api

import (
	"net/http"

	"github.com/better-compute/bcd/app"
)

// List is a whole collection, or one page of it.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"` // cursor of the next page
}

// list makes a List whose items are never null.
func list[T any](items []T, err error) (List[T], error) {
	if items == nil {
		items = []T{}
	}
	return List[T]{Items: items}, err
}

func (a *API) discoveryRoutes() []Route {
	return []Route{
		on(Route{ID: "discoveries.list", Method: "GET", Path: "/api/v1/discoveries", Permission: app.PermMachinesRead,
			Summary: "List machines that netbooted and that nobody enrolled.", CLI: CLI{"discovery", "list"}}, a.listDiscoveries),
		on(Route{ID: "discoveries.accept", Method: "POST", Path: "/api/v1/discoveries/{mac}/accept", Permission: app.PermMachinesWrite,
			Status: http.StatusCreated, Summary: "Enroll a discovered machine.", CLI: CLI{"discovery", "accept"}, Args: []string{"name"}}, a.acceptDiscovery),
		on(Route{ID: "discoveries.delete", Method: "DELETE", Path: "/api/v1/discoveries/{mac}", Permission: app.PermMachinesWrite,
			Summary: "Forget a discovered machine until it netboots again.", CLI: CLI{"discovery", "delete"}}, a.deleteDiscovery),
	}
}

func (a *API) listDiscoveries(c *Call, _ none) (List[app.Discovery], error) {
	return list(a.Network.ListDiscoveries(c))
}

func (a *API) acceptDiscovery(c *Call, in AcceptInput) (*app.Machine, error) {
	mac, err := c.mac()
	if err != nil {
		return nil, err
	}
	if err := validMachineName(in.Name); err != nil {
		return nil, err
	}
	if in.BMC != nil {
		if err := in.BMC.normalize("bmc"); err != nil {
			return nil, err
		}
	}
	return a.Service.AcceptDiscovery(c, c.actor(), mac, in)
}

func (a *API) deleteDiscovery(c *Call, _ none) (none, error) {
	mac, err := c.mac()
	if err != nil {
		return none{}, err
	}
	return none{}, a.Network.DeleteDiscovery(c, mac)
}
