package redfish

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

const maxProblems = 32

// inspect implements driver.Inspect.
type inspect struct{ *operations }

// Inspect reads the machine's identity, NICs, BMC and sensors.
func (i inspect) Inspect(ctx *driver.Context) (driver.Inventory, error) {
	var inv driver.Inventory
	err := i.use(ctx, readLimit, func(ctx *driver.Context, c *conn) error {
		sys, err := c.findSystem(ctx)
		if err != nil {
			return err
		}
		inv, err = c.inventory(ctx, sys)
		return err
	})
	for _, w := range inv.Warnings {
		ctx.Log().Warn("BMC value unreadable", "bmc", i.target.origin, "detail", w)
	}
	return inv, err
}

// inventory reads everything that hangs on a system. What is absent is left out.
func (c *conn) inventory(ctx context.Context, sys *document) (driver.Inventory, error) {
	c.takeMissed()
	power, err := c.readPower(ctx, sys)
	if err != nil {
		return driver.Inventory{}, err
	}
	s, dropped := decode[schemas.ComputerSystem](sys)
	inv := driver.Inventory{
		Manufacturer: clip(c.makerOf(sys), 128),
		Model:        clip(clean(firstOf(s.Model, sys.text("Model"))), 128),
		SerialNumber: clip(clean(firstOf(s.SerialNumber, sys.text("SerialNumber"))), 128),
		Power:        power.Power,
		MACs:         []string{}, IPAddresses: []string{},
		BIOSVersion: clip(firstOf(s.BiosVersion, sys.text("BiosVersion")), 128),
		Health:      clip(sys.text("Status", "Health"), 32),
		Warnings:    unreadable("system", dropped),
	}
	if id, err := app.ParseUUID(sys.text("UUID")); err == nil {
		inv.ProductUUID = string(id)
	}
	if n := s.ProcessorSummary.Count; n != nil && *n < 1<<16 {
		inv.CPUs = int(*n)
	}
	inv.CPUModel = clip(clean(s.ProcessorSummary.Model), 128)
	if g := s.MemorySummary.TotalSystemMemoryGiB; g != nil && *g > 0 && *g < 1<<22 {
		inv.MemoryBytes = int64(math.Round(*g * (1 << 30)))
	}
	for _, add := range []func(context.Context, *document, *driver.Inventory) error{c.addNICs, c.addBMC, c.addChassis} {
		if err := add(ctx, sys, &inv); err != nil {
			return inv, err
		}
	}
	inv.Warnings = append(inv.Warnings, c.takeMissed()...)
	return inv, nil
}

// clean turns firmware placeholders into nothing.
func clean(s string) string { return app.CleanSerial(s) }

// addNICs reads the system's Ethernet interfaces.
func (c *conn) addNICs(ctx context.Context, sys *document, inv *driver.Inventory) error {
	nics, err := c.nics(ctx, sys.link("EthernetInterfaces"), inv)
	for _, n := range nics {
		if !slices.Contains(inv.MACs, n.mac) {
			inv.MACs = append(inv.MACs, n.mac)
		}
		for _, a := range n.addrs {
			if !slices.Contains(inv.IPAddresses, a) {
				inv.IPAddresses = append(inv.IPAddresses, a)
			}
		}
	}
	return err
}

type nic struct {
	mac   string
	addrs []string
}

// nics reads a collection of Ethernet interfaces. Those without a usable address (BMCs write "", "Not Available" and
// zeros) and the BMC's own link to the host are left out.
func (c *conn) nics(ctx context.Context, link string, inv *driver.Inventory) ([]nic, error) {
	links, err := c.members(ctx, link, maxChildren)
	if err != nil {
		return nil, err
	}
	var out []nic
	for _, l := range links {
		d, err := c.find(ctx, l)
		if err != nil {
			return nil, err
		}
		if d == nil || quirkHostLink(d) {
			continue
		}
		e, dropped := decode[schemas.EthernetInterface](d)
		inv.Warnings = append(inv.Warnings, unreadable("NIC "+clip(l, 80), dropped)...)
		n := nic{addrs: addresses(d)}
		for _, s := range []string{d.text("PermanentMACAddress"), d.text("MACAddress"), e.MACAddress, d.text("MacAddress")} {
			if mac, err := app.ParseMAC(s); err == nil && n.mac == "" {
				n.mac = string(mac)
			}
		}
		if n.mac != "" {
			out = append(out, n)
		}
	}
	return out, nil
}

// addresses are the usable IP addresses of an interface.
func addresses(d *document) []string {
	var out []string
	for _, family := range []string{"IPv4Addresses", "IPv6Addresses"} {
		list, _ := d.get(family).([]any)
		for _, e := range list[:min(len(list), 16)] {
			m, _ := e.(map[string]any)
			a, err := netip.ParseAddr(textOf(m["Address"]))
			if err == nil && !a.IsUnspecified() && !a.IsLinkLocalUnicast() {
				out = append(out, a.WithZone("").String())
			}
		}
	}
	return out
}

// addBMC reads the manager and its interface.
func (c *conn) addBMC(ctx context.Context, sys *document, inv *driver.Inventory) error {
	d, err := c.manager(ctx, sys)
	if err != nil || d == nil {
		return err
	}
	m, dropped := decode[schemas.Manager](d)
	inv.Warnings = append(inv.Warnings, unreadable("BMC", dropped)...)
	inv.BMC = &driver.BMCInfo{
		Firmware:     clip(firstOf(m.FirmwareVersion, d.text("FirmwareVersion")), 128),
		Manufacturer: clip(clean(d.text("Manufacturer")), 128),
		Model:        clip(clean(d.text("Model")), 128),
	}
	var ignore driver.Inventory
	nics, err := c.nics(ctx, d.link("EthernetInterfaces"), &ignore)
	if err != nil {
		return err
	}
	for _, n := range nics {
		if inv.BMC.MAC == "" || (inv.BMC.IPAddress == "" && len(n.addrs) > 0) {
			inv.BMC.MAC = n.mac
			inv.BMC.IPAddress = firstOf(n.addrs...)
		}
	}
	if *inv.BMC == (driver.BMCInfo{}) {
		inv.BMC = nil
	}
	return nil
}

// addChassis reads the board's identity and the thermal and power sensors.
func (c *conn) addChassis(ctx context.Context, sys *document, inv *driver.Inventory) error {
	d, err := c.find(ctx, sys.link("Links", "Chassis"))
	if err != nil || d == nil {
		return err
	}
	inv.Model = firstOf(inv.Model, clip(clean(d.text("Model")), 128))
	inv.SerialNumber = firstOf(inv.SerialNumber, clip(clean(d.text("SerialNumber")), 128))
	b := driver.Board{
		Manufacturer: clip(clean(d.text("Manufacturer")), 128),
		Product:      clip(clean(firstOf(d.text("Model"), d.text("PartNumber"))), 128),
		Serial:       clip(clean(d.text("SerialNumber")), 128),
	}
	if b != (driver.Board{}) {
		inv.Board = &b
	}
	sensors := driver.Sensors{Problems: []string{}}
	for _, group := range []struct {
		link    string
		members []string
	}{
		{"Thermal", []string{"Temperatures", "Fans"}},
		{"Power", []string{"PowerSupplies", "Voltages"}},
	} {
		t, err := c.find(ctx, d.link(group.link))
		if err != nil {
			return err
		}
		for _, m := range group.members {
			countSensors(t, m, &sensors)
		}
	}
	if sensors.Count > 0 {
		inv.Sensors = &sensors
	}
	return nil
}

// countSensors adds the sensors of one list. Absent and disabled ones are not counted.
func countSensors(d *document, member string, into *driver.Sensors) {
	list, _ := d.get(member).([]any)
	for _, e := range list[:min(len(list), 512)] {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		s := document{body: m}
		switch s.text("Status", "State") {
		case "Absent", "Disabled", "UnavailableOffline":
			continue
		}
		into.Count++
		switch h := s.text("Status", "Health"); {
		case h == "OK" || h == "":
			into.OK++
		case len(into.Problems) < maxProblems:
			into.Problems = append(into.Problems, clip(firstOf(s.text("Name"), s.text("MemberId"))+": "+h, 120))
		}
	}
}
