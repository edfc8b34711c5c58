package app

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Subnet is a network the appliance may answer on. Mode "off" (listen only) is where each one starts.
type Subnet struct {
	ID        string       `json:"id"`
	CIDR      netip.Prefix `json:"cidr"`
	Interface string       `json:"interface,omitempty"` // the local interface; empty for a relayed subnet
	Mode      string       `json:"mode"`                // SubnetOff, SubnetFull, …
	PoolStart netip.Addr   `json:"poolStart,omitzero"`
	PoolEnd   netip.Addr   `json:"poolEnd,omitzero"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
	DNS       []netip.Addr `json:"dns,omitempty"`
	NTP       []netip.Addr `json:"ntp,omitempty"`
	Domain    string       `json:"domain,omitempty"`
	LeaseTime Duration     `json:"leaseTime"` // default 1h
	Discover  bool         `json:"discover"`  // record unknown machines that netboot here
	Created   time.Time    `json:"created"`

	Routes         []StaticRoute `json:"routes,omitempty"`         // besides the default one through Gateway
	Options        []DHCPOption  `json:"options,omitempty"`        // what the fields above do not say
	Reservations   []Reservation `json:"reservations,omitempty"`   // addresses kept for ports
	NoProbe        bool          `json:"noProbe,omitempty"`        // offer addresses without asking whether they are in use: where a router answers ARP for all
	TFTPSinglePort bool          `json:"tftpSinglePort,omitempty"` // answer TFTP from port 69 alone, for firewalls that do not follow it
	TFTPBlockSize  int           `json:"tftpBlockSize,omitempty"`  // bytes in a packet of TFTP, at most, for paths that drop large ones; 0: what a client asks for and Ethernet takes
}

// StaticRoute is a way to a network. Its text form is NETWORK=GATEWAY: "198.51.100.0/24=192.0.2.254".
type StaticRoute struct {
	To  netip.Prefix
	Via netip.Addr
}

// Reservation keeps an address of a subnet, inside its pool or not, for one port.
type Reservation struct {
	MAC  MAC        `json:"mac"`
	Addr netip.Addr `json:"address"`
	Note string     `json:"note,omitempty"`
}

// Rival is another DHCP server that was heard on a network. All but Interface and Seen is what it said: hostile.
type Rival struct {
	Interface string     `json:"interface"`
	Server    netip.Addr `json:"server"`              // its option 54
	MAC       MAC        `json:"mac,omitempty"`       // where its answer came from; "" when only a client named it
	Offered   netip.Addr `json:"offered,omitzero"`    // the address it offered us; invalid when it gives none
	Gateway   netip.Addr `json:"gateway,omitzero"`    //
	Next      netip.Addr `json:"nextServer,omitzero"` // the server it sends netbooting machines to
	BootFile  string     `json:"bootFile,omitempty"`  //
	Seen      time.Time  `json:"seen"`                //
}

// String says who it is and what it offers, in half a sentence.
func (r Rival) String() string {
	s := "the DHCP server " + r.Server.String()
	if r.MAC != "" {
		s += " (" + string(r.MAC) + ")"
	}
	s += " on " + r.Interface
	switch {
	case r.Offered.IsValid():
		s += ", which offers " + r.Offered.String()
	case r.MAC != "":
		s += ", which gives no addresses"
	}
	if r.BootFile != "" {
		s += fmt.Sprintf(" and the boot file %q", clip(r.BootFile, 80))
	}
	return s
}

// ServerLines are the lines of another DHCP server's configuration that send netbooting machines to the appliance.
type ServerLines struct {
	Server string   `json:"server"` // "ISC dhcpd", "Kea", "dnsmasq", "Windows DHCP"
	Where  string   `json:"where"`  // where the lines go, in half a sentence
	Lines  []string `json:"lines"`
}

// Lease is an address given to a MAC. Machines of ours hold theirs for good (Reserved).
type Lease struct {
	MAC      MAC        `json:"mac"`
	Addr     netip.Addr `json:"address"`
	SubnetID string     `json:"subnetId"`
	Hostname string     `json:"hostname,omitempty"` // as the client said it: hostile text
	State    string     `json:"state"`              // "offered", "bound", "declined", "released"
	Reserved bool       `json:"reserved,omitempty"`
	Expires  time.Time  `json:"expires"`
	Seen     time.Time  `json:"seen"`
}

// Discovery is a machine that netbooted and that nobody enrolled.
type Discovery struct {
	MAC      MAC       `json:"mac"`
	UUID     UUID      `json:"uuid,omitempty"`
	Arch     string    `json:"arch,omitempty"` // "bios", "x64", "arm64"
	Address  string    `json:"address,omitempty"`
	SubnetID string    `json:"subnetId,omitempty"`
	Vendor   string    `json:"vendor,omitempty"` // DHCP vendor class: hostile text
	Count    int       `json:"count"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// NetworkStore keeps subnets, leases and discoveries.
type NetworkStore interface {
	ListSubnets(ctx context.Context) ([]Subnet, error)
	PutSubnet(ctx context.Context, s *Subnet) error // create or replace by ID; an overlap is a Conflict
	// ChangeSubnet reads, changes and stores a subnet in one transaction; an error of change leaves it as it was.
	ChangeSubnet(ctx context.Context, id string, change func(*Subnet) error) (*Subnet, error)
	DeleteSubnet(ctx context.Context, id string) error

	ListLeases(ctx context.Context) ([]Lease, error)
	PutLeases(ctx context.Context, l []Lease) error // durable when it returns; many in one transaction
	DeleteLease(ctx context.Context, mac MAC, addr netip.Addr) error

	PutDiscovery(ctx context.Context, d *Discovery) error // upsert by MAC, at most 1000 rows, oldest go
	ListDiscoveries(ctx context.Context) ([]Discovery, error)
	DeleteDiscovery(ctx context.Context, mac MAC) error
}
