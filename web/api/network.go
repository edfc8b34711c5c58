package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// SubnetInput is a subnet as an operator describes it. Mode is changed by its own route, so that saving an edit never
// turns answering on.
type SubnetInput struct {
	CIDR      netip.Prefix `json:"cidr" doc:"the network, such as 192.0.2.0/24"`
	Interface string       `json:"interface,omitempty" doc:"network interface that faces it; absent: the one with an address in it"`
	PoolStart netip.Addr   `json:"poolStart,omitzero" doc:"first address to give to machines"`
	PoolEnd   netip.Addr   `json:"poolEnd,omitzero" doc:"last address to give to machines"`
	Gateway   netip.Addr   `json:"gateway,omitzero" doc:"default gateway"`
	DNS       []netip.Addr `json:"dns,omitempty" doc:"name server"`
	NTP       []netip.Addr `json:"ntp,omitempty" doc:"time server; absent: the appliance itself"`
	Domain    string       `json:"domain,omitempty" doc:"DNS domain"`
	LeaseTime app.Duration `json:"leaseTime,omitempty" doc:"how long an address is given for (default 1h)"`
	Discover  bool         `json:"discover,omitempty" doc:"boot unknown machines once for an inventory"`
}

// ModeInput turns answering on ("full") or off.
type ModeInput struct {
	Mode string `json:"mode" doc:"full answers, off does not"`
}

// SubnetView is a subnet with what it means.
type SubnetView struct {
	app.Subnet
	Notes []string `json:"notes,omitempty"` // what is, or would be, answered; rivals that were heard
}

func (a *API) networkRoutes() []Route {
	read, write := app.PermNetworkRead, app.PermNetworkWrite
	return []Route{
		on(Route{ID: "subnets.list", Method: "GET", Path: "/api/v1/subnets", Permission: read, Summary: "List subnets.", CLI: CLI{"subnet", "list"}}, a.listSubnets),
		on(Route{ID: "subnets.create", Method: "POST", Path: "/api/v1/subnets", Permission: write, Status: http.StatusCreated,
			Summary: "Add a subnet. It starts in mode off: nothing is answered.", CLI: CLI{"subnet", "add"}, Args: []string{"cidr"}}, a.createSubnet),
		on(Route{ID: "subnets.change", Method: "PUT", Path: "/api/v1/subnets/{id}", Permission: write, Summary: "Replace a subnet's settings; the mode stays.", CLI: CLI{"subnet", "set"}}, a.changeSubnet),
		on(Route{ID: "subnets.mode", Method: "POST", Path: "/api/v1/subnets/{id}/mode", Permission: write, Summary: "Turn answering on a subnet on (full) or off.", CLI: CLI{"subnet", "mode"}, Args: []string{"mode"}}, a.subnetMode),
		on(Route{ID: "subnets.delete", Method: "DELETE", Path: "/api/v1/subnets/{id}", Permission: write, Summary: "Delete a subnet that is off.", CLI: CLI{"subnet", "delete"}}, a.deleteSubnet),
		on(Route{ID: "leases.list", Method: "GET", Path: "/api/v1/leases", Permission: read, Summary: "List leases.", CLI: CLI{"lease", "list"}}, a.listLeases),
		on(Route{ID: "leases.delete", Method: "DELETE", Path: "/api/v1/leases/{mac}/{address}", Permission: write, Summary: "Free an address.", CLI: CLI{"lease", "delete"}}, a.deleteLease),
	}
}

func (a *API) view(c *Call, s app.Subnet) SubnetView {
	v := SubnetView{Subnet: s}
	if a.Modes != nil {
		v.Notes = a.Modes(c, s)
	}
	return v
}

func (a *API) listSubnets(c *Call, _ none) (List[SubnetView], error) {
	all, err := a.Network.ListSubnets(c)
	out := make([]SubnetView, 0, len(all))
	for _, s := range all {
		out = append(out, a.view(c, s))
	}
	return list(out, err)
}

func (a *API) subnet(c *Call) (*app.Subnet, error) {
	all, err := a.Network.ListSubnets(c)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s app.Subnet) bool { return s.ID == c.Path["id"] })
	if i < 0 {
		return nil, app.Missing("subnet", c.Path["id"])
	}
	return &all[i], nil
}

func (a *API) createSubnet(c *Call, in SubnetInput) (SubnetView, error) {
	s := app.Subnet{ID: app.NewID("net"), Mode: "off", Created: a.Now().UTC()}
	return a.putSubnet(c, s, in)
}

func (a *API) changeSubnet(c *Call, in SubnetInput) (SubnetView, error) {
	s, err := a.subnet(c)
	if err != nil {
		return SubnetView{}, err
	}
	return a.putSubnet(c, *s, in)
}

func (a *API) putSubnet(c *Call, s app.Subnet, in SubnetInput) (SubnetView, error) {
	s.CIDR, s.Interface, s.PoolStart, s.PoolEnd, s.Gateway = in.CIDR, in.Interface, in.PoolStart, in.PoolEnd, in.Gateway
	s.DNS, s.NTP, s.Domain, s.LeaseTime, s.Discover = in.DNS, in.NTP, strings.ToLower(in.Domain), in.LeaseTime, in.Discover
	if s.LeaseTime == 0 {
		s.LeaseTime = app.Duration(time.Hour)
	}
	return a.store(c, s, "saved")
}

func (a *API) subnetMode(c *Call, in ModeInput) (SubnetView, error) {
	s, err := a.subnet(c)
	if err != nil {
		return SubnetView{}, err
	}
	s.Mode = in.Mode
	return a.store(c, *s, "set to mode "+in.Mode)
}

func (a *API) store(c *Call, s app.Subnet, what string) (SubnetView, error) {
	if err := s.Validate(); err != nil {
		return SubnetView{}, err
	}
	if err := a.Network.PutSubnet(c, &s); err != nil {
		return SubnetView{}, err
	}
	return a.view(c, s), a.changed(c, s, what)
}

// changed notes a change of a subnet and has netboot take it up.
func (a *API) changed(c *Call, s app.Subnet, what string) error {
	if err := a.Bus.Record(c, app.Event{Kind: "network.subnet", Actor: c.actor(), Message: "subnet " + s.CIDR.String() + " was " + what}); err != nil {
		return err
	}
	if a.NetworkChanged == nil {
		return nil
	}
	return a.NetworkChanged(c)
}

func (a *API) deleteSubnet(c *Call, _ none) (none, error) {
	s, err := a.subnet(c)
	if err != nil {
		return none{}, err
	}
	if s.Mode != "off" {
		return none{}, app.Errorf(app.Conflict, "subnet-on", "the subnet %s is being answered", s.CIDR).Do("turn it off first")
	}
	if err := a.Network.DeleteSubnet(c, s.ID); err != nil {
		return none{}, err
	}
	return none{}, a.changed(c, *s, "deleted")
}

func (a *API) listLeases(c *Call, _ none) (List[app.Lease], error) {
	return list(a.Network.ListLeases(c))
}

func (a *API) deleteLease(c *Call, _ none) (none, error) {
	mac, err := c.mac()
	if err != nil {
		return none{}, err
	}
	addr, err := netip.ParseAddr(c.Path["address"])
	if err != nil {
		return none{}, app.Invalid("address", "is not an IP address")
	}
	if err := a.Network.DeleteLease(c, mac, addr); err != nil {
		return none{}, err
	}
	return none{}, a.Bus.Record(c, app.Event{Kind: "network.lease", Actor: c.actor(), Message: "freed " + addr.String() + " of " + string(mac)})
}
