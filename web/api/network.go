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

	Routes         []app.StaticRoute `json:"routes,omitempty" doc:"static route as NETWORK=GATEWAY, such as 198.51.100.0/24=192.0.2.254"`
	Options        []app.DHCPOption  `json:"options,omitempty" doc:"further DHCP option as CODE=TYPE:VALUE, such as 26=uint16:9000; types ip, text, uint8, uint16, uint32, bool, hex"`
	NoProbe        bool              `json:"noProbe,omitempty" doc:"offer addresses without asking whether they are in use: where a router answers ARP for all"`
	TFTPSinglePort bool              `json:"tftpSinglePort,omitempty" doc:"answer TFTP from port 69 alone, for firewalls that do not follow TFTP"`
	TFTPBlockSize  int               `json:"tftpBlockSize,omitempty" doc:"bytes of data in a TFTP packet at most, 512 to 1468, for paths that drop large packets; absent: no bound"`
}

// ModeInput says what is answered on a subnet.
type ModeInput struct {
	Mode         string `json:"mode" doc:"full gives addresses and boot files; proxy boot files only, beside another DHCP server; http as proxy, by HTTP alone; off answers nothing"`
	DespiteRival bool   `json:"despiteRival,omitempty" doc:"turn it on although another DHCP server answers there"`
}

// ReservationInput keeps an address for a port.
type ReservationInput struct {
	MAC  app.MAC    `json:"mac" doc:"MAC address of the port"`
	Addr netip.Addr `json:"address" doc:"address of the subnet, inside its pool or not"`
	Note string     `json:"note,omitempty" doc:"text for people"`
}

// SubnetView is a subnet with what it means.
type SubnetView struct {
	app.Subnet
	Notes     []string          `json:"notes,omitempty"`     // how it is served, when that is not as it should be
	Rivals    []app.Rival       `json:"rivals,omitempty"`    // other DHCP servers, as last found
	KeepYours []app.ServerLines `json:"keepYours,omitempty"` // for an operator who keeps another DHCP server
}

func (a *API) networkRoutes() []Route {
	read, write := app.PermNetworkRead, app.PermNetworkWrite
	return []Route{
		on(Route{ID: "subnets.list", Method: "GET", Path: "/api/v1/subnets", Permission: read, Summary: "List subnets.", CLI: CLI{"subnet", "list"}}, a.listSubnets),
		on(Route{ID: "subnets.create", Method: "POST", Path: "/api/v1/subnets", Permission: write, Status: http.StatusCreated,
			Summary: "Add a subnet. It starts in mode off: nothing is answered.", CLI: CLI{"subnet", "add"}, Args: []string{"cidr"}}, a.createSubnet),
		on(Route{ID: "subnets.change", Method: "PUT", Path: "/api/v1/subnets/{id}", Permission: write, Summary: "Replace a subnet's settings; the mode stays.", CLI: CLI{"subnet", "set"}}, a.changeSubnet),
		on(Route{ID: "subnets.mode", Method: "POST", Path: "/api/v1/subnets/{id}/mode", Permission: write, Summary: "Say what is answered on a subnet: full, proxy, http, or off.", CLI: CLI{"subnet", "mode"}, Args: []string{"mode"}}, a.subnetMode),
		on(Route{ID: "subnets.rivals", Method: "POST", Path: "/api/v1/subnets/{id}/rivals", Permission: write, Summary: "Look for other DHCP servers beside a subnet, for some seconds.", CLI: CLI{"subnet", "rivals"}}, a.seekRivals),
		on(Route{ID: "subnets.reserve", Method: "POST", Path: "/api/v1/subnets/{id}/reservations", Permission: write, Status: http.StatusCreated,
			Summary: "Keep an address of a subnet for one port.", CLI: CLI{"subnet", "reserve"}, Args: []string{"mac", "address"}}, a.reserve),
		on(Route{ID: "subnets.unreserve", Method: "DELETE", Path: "/api/v1/subnets/{id}/reservations/{mac}", Permission: write, Summary: "Delete the reservation of a port.", CLI: CLI{"subnet", "unreserve"}}, a.unreserve),
		on(Route{ID: "subnets.delete", Method: "DELETE", Path: "/api/v1/subnets/{id}", Permission: write, Summary: "Delete a subnet that is off.", CLI: CLI{"subnet", "delete"}}, a.deleteSubnet),
		on(Route{ID: "leases.list", Method: "GET", Path: "/api/v1/leases", Permission: read, Summary: "List leases.", CLI: CLI{"lease", "list"}}, a.listLeases),
		on(Route{ID: "leases.delete", Method: "DELETE", Path: "/api/v1/leases/{mac}/{address}", Permission: write, Summary: "Free an address.", CLI: CLI{"lease", "delete"}}, a.deleteLease),
	}
}

func (a *API) view(s app.Subnet) SubnetView {
	v := SubnetView{Subnet: s}
	if a.Wire == nil {
		return v
	}
	v.Notes, v.KeepYours = a.Wire.Notes(s), a.Wire.KeepYours(s)
	for _, r := range a.Wire.Rivals() {
		if r.Interface == s.Interface {
			v.Rivals = append(v.Rivals, r)
		}
	}
	return v
}

func (a *API) listSubnets(c *Call, _ none) (List[SubnetView], error) {
	all, err := a.Network.ListSubnets(c)
	out := make([]SubnetView, 0, len(all))
	for _, s := range all {
		out = append(out, a.view(s))
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
	s := app.Subnet{ID: app.NewID("net"), Mode: app.SubnetOff, Created: a.Now().UTC()}
	in.fill(&s)
	if err := s.Validate(); err != nil {
		return SubnetView{}, err
	}
	if err := a.Network.PutSubnet(c, &s); err != nil {
		return SubnetView{}, err
	}
	return a.view(s), a.changed(c, s, "saved")
}

func (a *API) changeSubnet(c *Call, in SubnetInput) (SubnetView, error) {
	return a.change(c, "saved", func(s *app.Subnet) error { in.fill(s); return nil })
}

// fill writes what an operator described over a subnet.
func (in SubnetInput) fill(s *app.Subnet) {
	s.CIDR, s.Interface, s.PoolStart, s.PoolEnd, s.Gateway = in.CIDR, in.Interface, in.PoolStart, in.PoolEnd, in.Gateway
	s.DNS, s.NTP, s.Domain, s.LeaseTime, s.Discover = in.DNS, in.NTP, strings.ToLower(in.Domain), in.LeaseTime, in.Discover
	s.Routes, s.Options, s.NoProbe, s.TFTPSinglePort, s.TFTPBlockSize = in.Routes, in.Options, in.NoProbe, in.TFTPSinglePort, in.TFTPBlockSize
	if s.LeaseTime == 0 {
		s.LeaseTime = app.Duration(time.Hour)
	}
}

// subnetMode changes what is answered. A network with another DHCP server is turned on beside it only when the caller says
// that he knows.
func (a *API) subnetMode(c *Call, in ModeInput) (SubnetView, error) {
	s, err := a.subnet(c)
	if err != nil {
		return SubnetView{}, err
	}
	s.Mode = in.Mode
	if err := s.Validate(); err != nil {
		return SubnetView{}, err
	}
	if s.Answers() && !in.DespiteRival {
		if err := a.rival(c, *s); err != nil {
			return SubnetView{}, err
		}
	}
	return a.change(c, "set to mode "+in.Mode, func(s *app.Subnet) error { s.Mode = in.Mode; return nil })
}

// rival refuses a mode in which two servers would say different things to the same machines: two that give addresses, or
// two that tell what to boot.
func (a *API) rival(c *Call, s app.Subnet) error {
	if a.Wire == nil || s.Interface == "" {
		return nil // behind a relay there is nobody to ask
	}
	found, err := a.Wire.SeekRivals(c, s.Interface)
	if app.CodeOf(err) == app.Unavailable {
		return nil // then nothing is answered there either, and the subnet's notes say why
	}
	if err != nil {
		return err
	}
	for _, r := range found {
		switch {
		case s.Mode == app.SubnetFull && r.Offered.IsValid():
			return app.Errorf(app.Conflict, "rival-dhcp", "another DHCP server gives addresses: %s", r).At("mode").
				Do("switch that one off, choose proxy, or confirm that both shall answer (despiteRival)")
		case r.BootFile != "":
			return app.Errorf(app.Conflict, "rival-boot", "another server tells machines what to boot: %s", r).At("mode").
				Do("remove the boot file from that one, or confirm that both shall answer (despiteRival)")
		}
	}
	return nil
}

func (a *API) seekRivals(c *Call, _ none) (SubnetView, error) {
	s, err := a.subnet(c)
	switch {
	case err != nil:
		return SubnetView{}, err
	case s.Interface == "" || a.Wire == nil:
		return SubnetView{}, app.Errorf(app.Unsupported, "behind-relay", "%s is reached through a relay, and other DHCP servers are heard on a local interface only", s.CIDR).
			Do("ask the people who run the relay")
	}
	if _, err := a.Wire.SeekRivals(c, s.Interface); err != nil {
		return SubnetView{}, err
	}
	return a.view(*s), nil
}

func (a *API) reserve(c *Call, in ReservationInput) (SubnetView, error) {
	mac, err := app.ParseMAC(string(in.MAC))
	if err != nil {
		return SubnetView{}, err
	}
	return a.change(c, "given a reservation of "+in.Addr.String()+" for "+string(mac), func(s *app.Subnet) error {
		s.Reservations = append(s.Reservations, app.Reservation{MAC: mac, Addr: in.Addr, Note: in.Note})
		return nil
	})
}

func (a *API) unreserve(c *Call, _ none) (SubnetView, error) {
	mac, err := c.mac()
	if err != nil {
		return SubnetView{}, err
	}
	return a.change(c, "relieved of the reservation for "+string(mac), func(s *app.Subnet) error {
		i := slices.IndexFunc(s.Reservations, func(r app.Reservation) bool { return r.MAC == mac })
		if i < 0 {
			return app.Missing("reservation", string(mac))
		}
		s.Reservations = slices.Delete(s.Reservations, i, i+1)
		return nil
	})
}

// change changes the subnet that the path names, if what comes of it is valid.
func (a *API) change(c *Call, what string, change func(*app.Subnet) error) (SubnetView, error) {
	s, err := a.Network.ChangeSubnet(c, c.Path["id"], func(s *app.Subnet) error {
		if err := change(s); err != nil {
			return err
		}
		return s.Validate()
	})
	if err != nil {
		return SubnetView{}, err
	}
	return a.view(*s), a.changed(c, *s, what)
}

// changed notes a change of a subnet and has netboot take it up.
func (a *API) changed(c *Call, s app.Subnet, what string) error {
	if err := a.Bus.Record(c, app.Event{Kind: "network.subnet", Actor: c.actor(), Message: "subnet " + s.CIDR.String() + " was " + what}); err != nil {
		return err
	}
	if a.Wire != nil {
		a.Wire.SubnetsChanged()
	}
	return nil
}

func (a *API) deleteSubnet(c *Call, _ none) (none, error) {
	s, err := a.subnet(c)
	if err != nil {
		return none{}, err
	}
	if s.Answers() {
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
	if a.Wire != nil {
		a.Wire.Free(mac, addr)
	}
	return none{}, a.Bus.Record(c, app.Event{Kind: "network.lease", Actor: c.actor(), Message: "freed " + addr.String() + " of " + string(mac)})
}
