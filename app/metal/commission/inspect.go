package commission

import (
	"context"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
)

const kindInspect = "commission.inspect"

// outOfBand is the step that asks the machine's BMC what it knows; none for a machine whose BMC cannot be asked.
func (v *Verbs) outOfBand(ctx context.Context, m *app.Machine) []workflow.Step {
	if m.BMC == nil || v.p.Supports(ctx, m, "inspect.inspect") != nil {
		return nil
	}
	return []workflow.Step{{ID: "inspect", Title: "Ask the BMC what it knows", Kind: kindInspect, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true}}
}

// inspect merges what the BMC says into what the ramdisk found: it fills gaps, and where both speak the ramdisk, which sees
// the machine from inside, is believed. A BMC that cannot be inspected holds nothing up.
func (v *Verbs) inspect(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	inv, err := v.p.Drivers.For(m, metal.CallOf(s.Command())).Inspect(ctx)
	if err != nil {
		s.Log("the BMC could not be inspected: %v", err)
		return nil, nil
	}
	var differ []string
	_, err = v.p.Machines.UpdateMachine(ctx, m.ID, func(m *app.Machine) error {
		differ = merge(m, inv)
		return nil
	})
	for _, d := range differ {
		s.Log("%s", d)
	}
	return inv, err
}

// merge takes over what is not known from inside, and tells where BMC and machine differ.
func merge(m *app.Machine, inv driver.Inventory) (differ []string) {
	for _, f := range []struct {
		name string
		at   *string
		says string
	}{
		{"vendor", &m.Vendor, metal.Clip(inv.Manufacturer)}, {"model", &m.Model, metal.Clip(inv.Model)}, {"serial", &m.Serial, app.CleanSerial(metal.Clip(inv.SerialNumber))},
	} {
		switch {
		case f.says == "":
		case *f.at == "":
			*f.at = f.says
			m.From(f.name, m.BMC.Driver)
		case f.name == "serial" && f.says != *f.at:
			differ = append(differ, "the BMC says serial number "+f.says+", the machine itself says "+*f.at)
		}
	}
	u, err := app.ParseUUID(inv.ProductUUID)
	switch {
	case err != nil || u == "":
	case m.UUID == "":
		m.UUID = u
		m.From("productUuid", m.BMC.Driver)
	case !m.UUID.Same(u):
		differ = append(differ, "the BMC says UUID "+string(u)+", the machine itself says "+string(m.UUID))
	}
	return differ
}
