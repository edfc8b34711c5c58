package app

import (
	"net/netip"
	"testing"
	"time"
)

func TestSubnetValidate(t *testing.T) {
	a := netip.MustParseAddr
	good := Subnet{CIDR: netip.MustParsePrefix("192.0.2.0/24"), Mode: SubnetFull, Interface: "eno1", PoolStart: a("192.0.2.10"), PoolEnd: a("192.0.2.20"), Gateway: a("192.0.2.1"),
		DNS: []netip.Addr{a("198.51.100.53")}, Domain: "rack1.example", LeaseTime: Duration(time.Hour)}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Subnet)
		field  string
	}{
		"zero":                 {func(s *Subnet) { s.CIDR = netip.Prefix{} }, "cidr"},
		"IPv6":                 {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("2001:db8::/64") }, "cidr"},
		"loopback":             {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("127.0.0.0/8") }, "cidr"},
		"link-local":           {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("169.254.0.0/16") }, "cidr"},
		"multicast":            {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("224.0.0.0/24") }, "cidr"},
		"reserved":             {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("240.0.0.0/8") }, "cidr"},
		"this network":         {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("0.0.0.0/8") }, "cidr"},
		"host bits":            {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("192.0.2.1/24") }, "cidr"},
		"one host":             {func(s *Subnet) { s.CIDR = netip.MustParsePrefix("192.0.2.0/31") }, "cidr"},
		"mode":                 {func(s *Subnet) { s.Mode = "relay" }, "mode"},
		"small TFTP blocks":    {func(s *Subnet) { s.TFTPBlockSize = 511 }, "tftpBlockSize"},
		"large TFTP blocks":    {func(s *Subnet) { s.TFTPBlockSize = 1469 }, "tftpBlockSize"},
		"negative TFTP blocks": {func(s *Subnet) { s.TFTPBlockSize = -1 }, "tftpBlockSize"},
		"short lease":          {func(s *Subnet) { s.LeaseTime = Duration(time.Second) }, "leaseTime"},
		"interface":            {func(s *Subnet) { s.Interface = "../eno1" }, "interface"},
		"domain":               {func(s *Subnet) { s.Domain = "rack 1.example" }, "domain"},
		"network address":      {func(s *Subnet) { s.PoolStart = a("192.0.2.0") }, "poolStart"},
		"broadcast":            {func(s *Subnet) { s.PoolEnd = a("192.0.2.255") }, "poolEnd"},
		"backwards":            {func(s *Subnet) { s.PoolEnd = a("192.0.2.9") }, "poolEnd"},
		"half a pool":          {func(s *Subnet) { s.PoolEnd = netip.Addr{} }, "poolEnd"},
		"no pool":              {func(s *Subnet) { s.PoolStart, s.PoolEnd = netip.Addr{}, netip.Addr{} }, "poolStart"},
		"gateway elsewhere":    {func(s *Subnet) { s.Gateway = a("198.51.100.1") }, "gateway"},
		"route with host bits": {func(s *Subnet) { s.Routes = []StaticRoute{{netip.MustParsePrefix("198.51.100.1/24"), a("192.0.2.9")}} }, "routes"},
		"route through elsewhere": {func(s *Subnet) {
			s.Routes = []StaticRoute{{netip.MustParsePrefix("198.51.100.0/24"), a("203.0.113.1")}}
		}, "routes"},
		"two default routes":    {func(s *Subnet) { s.Routes = []StaticRoute{{netip.MustParsePrefix("0.0.0.0/0"), a("192.0.2.9")}} }, "routes"},
		"option twice":          {func(s *Subnet) { s.Options = []DHCPOption{{26, "uint16", "9000"}, {26, "uint16", "1500"}} }, "options"},
		"reservation elsewhere": {func(s *Subnet) { s.Reservations = []Reservation{{"00:00:5e:00:53:01", a("203.0.113.1"), ""}} }, "address"},
		"reserved gateway":      {func(s *Subnet) { s.Reservations = []Reservation{{"00:00:5e:00:53:01", a("192.0.2.1"), ""}} }, "address"},
		"reserved twice": {func(s *Subnet) {
			s.Reservations = []Reservation{{"00:00:5e:00:53:01", a("192.0.2.5"), ""}, {"00:00:5e:00:53:02", a("192.0.2.5"), ""}}
		}, "address"},
		"MAC reserved twice": {func(s *Subnet) {
			s.Reservations = []Reservation{{"00:00:5e:00:53:01", a("192.0.2.5"), ""}, {"00:00:5e:00:53:01", a("192.0.2.6"), ""}}
		}, "mac"},
		"multicast DNS": {func(s *Subnet) { s.DNS = []netip.Addr{a("224.0.0.1")} }, "dns"},
	} {
		s := good
		c.change(&s)
		if e, ok := AsError(s.Validate()); !ok || e.Field != c.field {
			t.Errorf("%s: %v, want field %s", name, s.Validate(), c.field)
		}
	}
	for _, mode := range []string{SubnetOff, SubnetProxy, SubnetHTTP} {
		s := Subnet{CIDR: good.CIDR, Mode: mode, LeaseTime: good.LeaseTime}
		if err := s.Validate(); err != nil {
			t.Errorf("%s without a pool: %v", mode, err)
		}
	}
	off := Subnet{CIDR: good.CIDR, Mode: SubnetOff, LeaseTime: good.LeaseTime}
	if err := off.Validate(); err != nil {
		t.Errorf("off without a pool: %v", err)
	}
	for cidr, want := range map[string]string{"192.0.2.0/24": "192.0.2.255", "192.0.2.128/25": "192.0.2.255", "192.0.2.0/30": "192.0.2.3", "10.0.0.0/8": "10.255.255.255"} {
		if got := broadcast(netip.MustParsePrefix(cidr)); got.String() != want {
			t.Errorf("broadcast of %s = %s", cidr, got)
		}
	}
}
