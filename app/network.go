package app

import (
	"context"
	"net/netip"
	"time"
)

// Subnet is a network the appliance may answer on. Mode "off" (listen only) is where each one starts.
type Subnet struct {
	ID        string       `json:"id"`
	CIDR      netip.Prefix `json:"cidr"`
	Interface string       `json:"interface,omitempty"` // the local interface; empty for a relayed subnet
	Mode      string       `json:"mode"`                // "off", "full"
	PoolStart netip.Addr   `json:"poolStart,omitzero"`
	PoolEnd   netip.Addr   `json:"poolEnd,omitzero"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
	DNS       []netip.Addr `json:"dns,omitempty"`
	NTP       []netip.Addr `json:"ntp,omitempty"`
	Domain    string       `json:"domain,omitempty"`
	LeaseTime Duration     `json:"leaseTime"` // default 1h
	Discover  bool         `json:"discover"`  // record unknown machines that netboot here
	Created   time.Time    `json:"created"`
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
	DeleteSubnet(ctx context.Context, id string) error

	ListLeases(ctx context.Context) ([]Lease, error)
	PutLeases(ctx context.Context, l []Lease) error // durable when it returns; many in one transaction
	DeleteLease(ctx context.Context, mac MAC, addr netip.Addr) error

	PutDiscovery(ctx context.Context, d *Discovery) error // upsert by MAC, at most 1000 rows, oldest go
	ListDiscoveries(ctx context.Context) ([]Discovery, error)
	DeleteDiscovery(ctx context.Context, mac MAC) error
}
