package drivers

import (
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
)

// ipmiOperations is what the bundled IPMI driver serves, known before its plugin has said so.
var ipmiOperations = []string{"power.getPower", "power.setPower", "management.setBootDevice", "inspect.inspect", "console.open"}

// Check refuses, with UNSUPPORTED and the reason bmc-driver-unsupported, operations ("power.setPower") that the machine's
// drivers do not serve, or whose drivers the site does not have, before any workflow starts. A driver that is down is
// UNAVAILABLE: it may come back. Which operations a driver serves that nobody knows is not checked.
func (r *Registry) Check(m *app.Machine, operations ...string) error {
	for _, op := range operations {
		kind, name, _ := strings.Cut(op, ".")
		id := boundDriver(m, kind)
		if id == "" {
			return unsupported(op, "%s has no driver for %s", m.Name, kind).Do("give it a BMC with bcd machine set-bmc, or bind a driver for %s", kind)
		}
		if serves, known := r.serves(id, kind, name); known && !serves {
			return unsupported(op, "the driver %q of %s does not serve %s", id, m.Name, op).
				Do("bind another driver for %s, or drive the BMC by Redfish", kind)
		}
		if err := r.here(id, kind, reasonNotServed); err != nil {
			e, _ := app.AsError(err)
			return e.At(op)
		}
	}
	return nil
}

func unsupported(op, format string, args ...any) *app.Error {
	return app.Errorf(app.Unsupported, reasonNotServed, format, args...).At(op)
}

// boundDriver is the driver that an operation of a kind goes to. Inspection out of band is always the BMC driver's.
func boundDriver(m *app.Machine, kind string) string {
	if kind == "inspect" && m.BMC != nil {
		return m.BMC.Driver
	}
	return m.Drivers[kind].Driver
}

// serves reports whether a driver serves an operation, asking the configuration first, then the built-in table, then the
// registered definition. known is false when none of them knows the driver.
func (r *Registry) serves(id, kind, name string) (serves, known bool) {
	if ops, ok := r.cfg.BMCDrivers[id]; ok {
		return slices.Contains(ops, kind+"."+name), true
	}
	e := r.active(id)
	if id == "ipmi" && (e == nil || e.plugin != "") {
		return slices.Contains(ipmiOperations, kind+"."+name), true
	}
	if e != nil {
		return e.driver.Serves(kind, name), true
	}
	return false, false
}
