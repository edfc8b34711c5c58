package console

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func networkPages() []Page {
	return []Page{
		get("/network", network), post("/network/subnets", saveSubnet), post("/network/subnets/{id}", saveSubnet),
		post("/network/subnets/{id}/mode", subnetMode), post("/network/subnets/{id}/rivals", seekRivals), post("/network/subnets/{id}/delete", deleteSubnet),
		post("/network/subnets/{id}/reservations", reserve), post("/network/subnets/{id}/reservations/{mac}/delete", unreserve), post("/network/leases/delete", deleteLease),
		get("/discovered", discovered), get("/discovered/{mac}", acceptForm), post("/discovered/{mac}/accept", accept), post("/discovered/{mac}/delete", forget),
		post("/ports/{id}/answer", answerPort), post("/ports/{id}/forget", forgetPort),
	}
}

func network(c *Console, q *request) error {
	subnets, err := ask[api.List[api.SubnetView]](q, "subnets.list", nil)
	if err != nil {
		return err
	}
	leases, err := ask[api.List[app.Lease]](q, "leases.list", nil)
	if err != nil {
		return err
	}
	d := views.NetworkData{Subnets: subnets.Items, Leases: leases.Items, Machines: map[app.MAC]app.Machine{}, Now: c.api.Now()}
	for _, l := range leases.Items {
		if m, err := c.api.Machines.MachineByMAC(q, l.MAC); err == nil {
			d.Machines[l.MAC] = *m
		}
	}
	return q.show("Network", "/network", func(p views.Page) templ.Component { return views.Network(p, d) })
}

// saveSubnet adds a subnet, or replaces the settings of the one that the path names.
func saveSubnet(c *Console, q *request) error {
	in, err := subnetInput(q.form.Get)
	if err == nil {
		id := "subnets.create"
		if q.Path["id"] != "" {
			id = "subnets.change"
		}
		_, err = ask[api.SubnetView](q, id, in)
	}
	if err != nil {
		q.refuse(err)
		return network(c, q)
	}
	return q.done("/network", "The subnet is saved.")
}

func subnetInput(get func(string) string) (api.SubnetInput, error) {
	in := api.SubnetInput{Interface: strings.TrimSpace(get("interface")), Domain: strings.TrimSpace(get("domain")), Discover: get("discover") != "", NoProbe: get("noProbe") != "", TFTPSinglePort: get("tftpSinglePort") != ""}
	var err error
	if in.CIDR, err = netip.ParsePrefix(strings.TrimSpace(get("cidr"))); err != nil {
		return in, app.Invalid("cidr", "is not a network").Do("write it as 192.0.2.0/24")
	}
	for name, to := range map[string]*netip.Addr{"poolStart": &in.PoolStart, "poolEnd": &in.PoolEnd, "gateway": &in.Gateway} {
		s := strings.TrimSpace(get(name))
		if s == "" {
			continue
		}
		if *to, err = netip.ParseAddr(s); err != nil {
			return in, app.Invalid(name, "is not an IP address")
		}
	}
	for name, to := range map[string]*[]netip.Addr{"dns": &in.DNS, "ntp": &in.NTP} {
		for _, s := range words(get(name)) {
			a, err := netip.ParseAddr(s)
			if err != nil {
				return in, app.Invalid(name, "lists something that is not an IP address")
			}
			*to = append(*to, a)
		}
	}
	for _, line := range words(get("routes")) {
		var r app.StaticRoute
		if err := r.UnmarshalText([]byte(line)); err != nil {
			return in, err
		}
		in.Routes = append(in.Routes, r)
	}
	for _, line := range lines(get("options")) {
		var o app.DHCPOption
		if err := o.UnmarshalText([]byte(line)); err != nil {
			return in, err
		}
		in.Options = append(in.Options, o)
	}
	lease, err := time.ParseDuration(strings.TrimSpace(get("leaseTime")))
	if err != nil {
		return in, app.Invalid("leaseTime", "is not a length of time").Do("write it as 1h or 30m")
	}
	in.LeaseTime = app.Duration(lease)
	if s := strings.TrimSpace(get("tftpBlockSize")); s != "" {
		if in.TFTPBlockSize, err = strconv.Atoi(s); err != nil {
			return in, app.Invalid("tftpBlockSize", "is not a number of bytes").Do("use 512 to 1468, or leave it empty")
		}
	}
	return in, nil
}

func subnetMode(c *Console, q *request) error {
	v, err := ask[api.SubnetView](q, "subnets.mode", api.ModeInput{Mode: q.form.Get("mode"), DespiteRival: q.form.Get("despiteRival") != ""})
	if err != nil {
		q.refuse(err)
		return network(c, q)
	}
	if v.Answers() {
		return q.done("/network", v.CIDR.String()+" is answered now.")
	}
	return q.done("/network", v.CIDR.String()+" is switched off: nothing is answered.")
}

func seekRivals(c *Console, q *request) error {
	v, err := ask[api.SubnetView](q, "subnets.rivals", nil)
	if err != nil {
		q.refuse(err)
		return network(c, q)
	}
	if len(v.Rivals) == 0 {
		return q.done("/network", "No other DHCP server answered.")
	}
	return q.done("/network", "Other DHCP servers answered: they are named at the subnet.")
}

func reserve(c *Console, q *request) error {
	in := api.ReservationInput{Note: strings.TrimSpace(q.form.Get("note"))}
	var err error
	if in.MAC, err = app.ParseMAC(strings.TrimSpace(q.form.Get("mac"))); err == nil {
		if in.Addr, err = netip.ParseAddr(strings.TrimSpace(q.form.Get("address"))); err != nil {
			err = app.Invalid("address", "is not an IP address")
		}
	}
	if err == nil {
		_, err = ask[api.SubnetView](q, "subnets.reserve", in)
	}
	if err != nil {
		q.refuse(err)
		return network(c, q)
	}
	return q.done("/network", in.Addr.String()+" is kept for "+string(in.MAC)+".")
}

func unreserve(c *Console, q *request) error {
	if _, err := ask[api.SubnetView](q, "subnets.unreserve", nil); err != nil {
		q.refuse(err)
		return network(c, q)
	}
	return q.done("/network", "The reservation is deleted.")
}

func deleteSubnet(c *Console, q *request) error {
	if _, err := ask[any](q, "subnets.delete", nil); err != nil {
		q.refuse(err)
		return network(c, q)
	}
	return q.done("/network", "The subnet is deleted.")
}

func deleteLease(c *Console, q *request) error {
	call := *q.Call
	call.Path = map[string]string{"mac": q.form.Get("mac"), "address": q.form.Get("address")}
	if _, err := c.api.Invoke(&call, "leases.delete", nil); err != nil {
		q.refuse(err)
		return network(c, q)
	}
	return q.done("/network", "The address is free.")
}

func discovered(c *Console, q *request) error {
	l, err := ask[api.List[app.Discovery]](q, "discoveries.list", nil)
	if err != nil {
		return err
	}
	ports, err := ask[api.List[api.PortQuestion]](q, "ports.list", nil)
	if err != nil {
		return err
	}
	d := views.DiscoveredData{Found: l.Items, Ports: ports.Items, Now: c.api.Now()}
	return q.show("Discovered", "/discovered", func(p views.Page) templ.Component { return views.Discovered(p, d) })
}

// answerPort answers a question about a port, from the page of what was discovered.
func answerPort(c *Console, q *request) error {
	a, err := ask[*api.PortQuestion](q, "ports.answer", api.AnswerInput{Answer: q.form.Get("answer")})
	if err != nil {
		q.refuse(err)
		return discovered(c, q)
	}
	if a.State == app.QuestionAccepted {
		return q.done("/machines/"+a.MachineID, "Port "+string(a.MAC)+" is one of "+a.Machine+" now.")
	}
	return q.done("/discovered", "It stays as it is, and is not asked again while nothing changes.")
}

func forgetPort(c *Console, q *request) error {
	if _, err := ask[any](q, "ports.forget", nil); err != nil {
		q.refuse(err)
		return discovered(c, q)
	}
	return q.done("/discovered", "Forgotten: it is asked again when the port is seen again.")
}

func acceptForm(c *Console, q *request) error {
	mac, err := app.ParseMAC(q.Path["mac"])
	if err != nil {
		return err
	}
	return q.enrollPage(string(mac), nil)
}

func accept(c *Console, q *request) error {
	mac, err := app.ParseMAC(q.Path["mac"])
	if err != nil {
		return err
	}
	if q.form.Get("do") == "test" {
		return q.testBMC(string(mac))
	}
	in := api.AcceptInput{Name: strings.TrimSpace(q.form.Get("name")), BMC: q.bmc(), Pool: q.form.Get("pool"), Profile: q.form.Get("hardwareProfile")}
	m, err := ask[*app.Machine](q, "discoveries.accept", in)
	if err != nil {
		q.refuse(err)
		return q.enrollPage(string(mac), nil)
	}
	return q.done("/machines/"+m.ID, m.Name+" is enrolled. Commission it next.")
}

func forget(c *Console, q *request) error {
	if _, err := ask[any](q, "discoveries.delete", nil); err != nil {
		q.refuse(err)
		return discovered(c, q)
	}
	return q.done("/discovered", "Forgotten, until it netboots again.")
}
