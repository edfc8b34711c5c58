package api

import (
	"github.com/better-compute/bcd/app"
)

func (a *API) systemNetworkRoutes() []Route {
	read, write := app.PermMachinesRead, app.PermMachinesWrite
	return []Route{
		on(Route{ID: "machines.network.get", Method: "GET", Path: "/api/v1/machines/{id}/network", Permission: read,
			Summary: "Show the network that the next deploy sets up.", CLI: CLI{"machine", "network"}}, a.systemNetwork),
		on(Route{ID: "machines.network.put", Method: "PUT", Path: "/api/v1/machines/{id}/network", Permission: write,
			Summary: "Say which network the next deploy sets up: ports, bonds, VLANs, bridges.", CLI: CLI{"machine", "set-network"}}, a.putSystemNetwork),
		on(Route{ID: "machines.network.delete", Method: "DELETE", Path: "/api/v1/machines/{id}/network", Permission: write,
			Summary: "Go back to DHCP on every port at the next deploy.", CLI: CLI{"machine", "clear-network"}}, a.deleteSystemNetwork),
	}
}

func (a *API) systemNetwork(c *Call, _ none) (*app.SystemNetwork, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	if m.Network == nil {
		return nil, app.Errorf(app.NotFound, "no-network", "no network is set for %s: its system asks DHCP on every port", m.Name).
			Do("set one, or leave it so")
	}
	return m.Network, nil
}

func (a *API) putSystemNetwork(c *Call, in app.SystemNetwork) (*app.SystemNetwork, error) {
	if err := in.Validate("network"); err != nil {
		return nil, err
	}
	m, err := a.changeNetwork(c, &in)
	if err != nil {
		return nil, err
	}
	return m.Network, nil
}

func (a *API) deleteSystemNetwork(c *Call, _ none) (none, error) {
	_, err := a.changeNetwork(c, nil)
	return none{}, err
}

// changeNetwork stores a network whose ports are the machine's, or none.
func (a *API) changeNetwork(c *Call, n *app.SystemNetwork) (*app.Machine, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	m, err = a.Machines.UpdateMachine(c, m.ID, func(m *app.Machine) error {
		m.Network = n
		if n == nil {
			return nil
		}
		return n.CheckMachine("network", m.NICs)
	})
	if err != nil {
		return nil, err
	}
	return m, a.Bus.Record(c, app.Event{Kind: "machine.changed", MachineID: m.ID, Actor: c.actor(), Message: "the network of the next system on " + m.Name + " was changed"})
}
