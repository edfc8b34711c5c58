package ipmi

import (
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// inspect implements driver.Inspect.
type inspect struct{ *operations }

// Inspect reads the machine's identity, its BMC and its sensors. MACs and addresses stay empty: IPMI does not name the
// host's NICs.
func (i inspect) Inspect(ctx *driver.Context) (driver.Inventory, error) {
	inv := driver.Inventory{MACs: []string{}, IPAddresses: []string{}}
	l, err := i.login(ctx)
	if err != nil {
		return inv, err
	}
	reading, err := i.readPower(ctx, l)
	if err != nil {
		return inv, err
	}
	inv.Power = reading.Power
	if err := i.addFRU(ctx, l, &inv); err != nil {
		return inv, err
	}
	for _, add := range []func(*driver.Context, *login, *driver.Inventory) error{i.addMC, i.addGUID, i.addLAN, i.addSensors} {
		err := add(ctx, l, &inv)
		if ctx.Err() != nil {
			return inv, ctx.Err()
		}
		if err != nil {
			inv.Warnings = append(inv.Warnings, driver.AsError(err).Message)
		}
	}
	for _, w := range inv.Warnings {
		ctx.Log().Warn("BMC value unreadable", "bmc", l.target.String(), "detail", w)
	}
	return inv, nil
}

// addFRU reads the builtin FRU. Never without its number: that would list the sensor repository, and erase an empty one.
// ipmitool 1.8.19 crashes on a FRU whose header points past its end: what it printed until then counts, and the machine
// is fine.
func (i inspect) addFRU(ctx *driver.Context, l *login, inv *driver.Inventory) error {
	c := words("fru", "print", "0")
	a, err := i.ask(ctx, l, c)
	if err != nil {
		return err
	}
	f := parseFRU(a.stdout)
	switch {
	case a.signal != "":
		inv.Warnings = append(inv.Warnings, "the FRU of the machine cannot be read to its end: "+l.firstLine(answer{signal: a.signal}))
	case f.empty() && a.failed():
		return l.fault(c, a)
	case f.empty():
		inv.Warnings = append(inv.Warnings, "the FRU of the machine says nothing: "+l.firstLine(a))
	}
	if len(f.again) > 0 {
		inv.Warnings = append(inv.Warnings, "the FRU of the machine names these twice, the first counts: "+strings.Join(f.again, ", "))
	}
	inv.Manufacturer, inv.Model, inv.SerialNumber = f.manufacturer(), f.model(), f.serial()
	if b := f.board(); b != (driver.Board{}) {
		inv.Board = &b
	}
	return nil
}

// bmc gives the inventory's BMC, made when first needed.
func bmc(inv *driver.Inventory) *driver.BMCInfo {
	if inv.BMC == nil {
		inv.BMC = &driver.BMCInfo{}
	}
	return inv.BMC
}

func (i inspect) addMC(ctx *driver.Context, l *login, inv *driver.Inventory) error {
	a, err := i.demand(ctx, l, words("mc", "info"))
	if err != nil {
		return err
	}
	if mc := parseMC(a.stdout); mc.firmware != "" || mc.maker != "" {
		bmc(inv).Firmware, bmc(inv).Manufacturer = mc.firmware, mc.maker
	}
	return nil
}

func (i inspect) addGUID(ctx *driver.Context, l *login, inv *driver.Inventory) error {
	a, err := i.demand(ctx, l, words("mc", "guid"))
	if err == nil {
		inv.ProductUUID = parseGUID(a.stdout)
	}
	return err
}

func (i inspect) addLAN(ctx *driver.Context, l *login, inv *driver.Inventory) error {
	a, err := i.demand(ctx, l, words("lan", "print"))
	mac, ip := parseLAN(a.stdout)
	if mac != "" || ip != "" {
		bmc(inv).MAC, bmc(inv).IPAddress = mac, ip
	}
	return err
}

// addSensors lists the sensors, but only when the repository shows records: ipmitool erases an empty one in order to
// rebuild it ("SDRR successfully erased"), which no BMC survives unharmed.
func (i inspect) addSensors(ctx *driver.Context, l *login, inv *driver.Inventory) error {
	a, err := i.demand(ctx, l, words("sdr", "info"))
	if err != nil || parseRecordCount(a.stdout) == 0 {
		return err
	}
	a, err = i.demand(ctx, l, words("sdr", "list"))
	if s := parseSensors(a.stdout); s.Count > 0 {
		inv.Sensors = &s
	}
	return err
}
