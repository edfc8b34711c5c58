// Package commission boots a machine into the ramdisk, takes its inventory, tests it and leaves it powered off and ready.
package commission

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/baseline"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Verb is the name of the workflow.
const Verb = "commission"

const kindSave = "commission.save"

// Verbs commissions machines.
type Verbs struct {
	p        *metal.Ports
	baseline *baseline.Steps
}

// New registers the verb.
func New(p *metal.Ports) *Verbs {
	v := &Verbs{p, baseline.New(p)}
	v.registerTests()
	p.Flows.Register(workflow.Kind{Name: kindSave, Budget: metal.BMCCall, Run: v.save})
	p.Flows.Register(workflow.Kind{Name: kindInspect, Budget: metal.BMCCall, Run: v.inspect})
	p.Flows.RegisterVerb(workflow.Verb{
		Name: Verb, Version: 1,
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			if err := metal.From(m, Verb, changes(w.Steps), from...); err != nil {
				return err
			}
			metal.Enter(m, w, app.StateCommissioning, p.Now().UTC())
			return nil
		},
		End: func(m *app.Machine, w *workflow.Workflow) error {
			metal.Leave(m, w, app.StateReady, false, p.Now().UTC())
			return nil
		},
		Cleanup: p.PowerDown,
		// The machine was powered off, and its agent with it.
		RetryFrom: func(*workflow.Workflow) int { return 0 },
	})
	return v
}

// Start starts commissioning a machine. tests are those to make instead of its hardware profile's, by id; nil: the profile's.
func (v *Verbs) Start(ctx context.Context, actor, machineID string, tests []string) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if err := metal.From(m, Verb, false, from...); err != nil {
		return nil, err
	}
	if err := v.p.CanNetboot(ctx, m); err != nil {
		return nil, err
	}
	steps, err := v.plan(ctx, m, tests)
	if err != nil {
		return nil, err
	}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: steps})
}

// from lists the states that a commissioning starts from.
var from = []app.State{app.StateEnrolled, app.StateReady, app.StateFailed}

// changes reports whether steps of a profile change more than the power: a locked machine is then refused.
func changes(steps []workflow.Step) bool {
	return slices.ContainsFunc(steps, func(s workflow.Step) bool {
		return baseline.Changes(s) || s.Kind == agentv1.KindDriverInvoke || s.Kind == agentv1.KindTest && !s.RetrySafe
	})
}

// plan puts the steps together: what the machine's hardware profile says of firmware, settings and volumes before its
// first boot, and the profile's own steps after the inventory. What they have left is then tested.
func (v *Verbs) plan(ctx context.Context, m *app.Machine, only []string) ([]workflow.Step, error) {
	profile, err := v.p.Drivers.ProfileFor(ctx, m)
	if err != nil {
		return nil, err
	}
	before, after, err := v.baseline.Plan(ctx, m, profile)
	if err != nil {
		return nil, err
	}
	var own []workflow.Step
	if profile != nil {
		if own, err = v.p.ProfileSteps(ctx, m, "profile", profile.Steps.Commission); err != nil {
			return nil, err
		}
	}
	tests, err := planTests(profile, only)
	if err != nil {
		return nil, err
	}
	steps := slices.Concat(before, v.p.Ramdisk(m))
	steps = append(steps,
		metal.OnAgent("inventory", "Take the inventory", agentv1.KindInventory, nil),
		workflow.Step{ID: "save", Title: "Store the inventory", Kind: kindSave, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true})
	order := v.p.BootOrderSteps(m, profile, metal.BootOrderUse{Title: "Read the boot order", Adopt: true})
	return append(slices.Concat(steps, v.outOfBand(ctx, m), after, own, order, tests),
		workflow.Step{ID: "revoke", Title: "Withdraw the permission to netboot", Kind: metal.KindRevoke, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true},
		metal.Power("off-again", "Power off", "off"),
	), nil
}

// save stores the inventory and what it says about the machine's identity.
func (v *Verbs) save(ctx context.Context, s workflow.StepContext) (any, error) {
	var raw json.RawMessage
	if !s.Result("inventory", &raw) {
		return nil, app.Errorf(app.Internal, "no-inventory", "the inventory step left no result")
	}
	var inv agentv1.Inventory
	if err := json.Unmarshal(raw, &inv); err != nil {
		return nil, app.Errorf(app.InvalidInput, "bad-inventory", "the agent's inventory cannot be read: %w", err)
	}
	id := s.Command().MachineID
	if err := v.p.Machines.SetInventory(ctx, id, raw); err != nil {
		return nil, err
	}
	owners, err := v.others(ctx, id, &inv)
	if err != nil {
		return nil, err
	}
	m, err := v.p.Machines.UpdateMachine(ctx, id, func(m *app.Machine) error { return Apply(m, &inv) })
	if err != nil {
		return nil, err
	}
	for mac, owner := range owners {
		s.Log("port %s is known as one of %s: it stays there until a person says that it was moved here", mac, owner.Name)
		if v.p.AskPort != nil {
			v.p.AskPort(ctx, mac, owner, m)
		}
	}
	s.Log("inventory: %d CPUs, %d bytes of memory, %d disks, %d network ports", m.Summary.CPUs, m.Summary.MemoryBytes, m.Summary.Disks, len(m.NICs))
	return map[string]any{"partial": inv.Partial}, nil
}

// others takes the ports that are other machines' out of an inventory, and gives their owners. A card that was moved is a
// person's to say; until then the machine is commissioned without it.
func (v *Verbs) others(ctx context.Context, id string, inv *agentv1.Inventory) (map[app.MAC]*app.Machine, error) {
	owners := map[app.MAC]*app.Machine{}
	var own []agentv1.NIC
	for _, n := range inv.NICs {
		mac, err := app.ParseMAC(n.MAC)
		if err != nil || n.BMCUSB || n.Virtual || len(own) >= maxInventoryNICs {
			continue // identifies nothing
		}
		switch owner, err := v.p.Machines.MachineByMAC(ctx, mac); {
		case err == nil && owner.ID != id:
			owners[mac] = owner
		case err == nil || app.CodeOf(err) == app.NotFound:
			own = append(own, n)
		default:
			return nil, err
		}
	}
	inv.NICs = own
	return owners, nil
}

// maxInventoryNICs bounds the ports of an inventory that are looked up.
const maxInventoryNICs = 4 * metal.MaxNICs

// Apply writes what an inventory says onto a machine. Every string in it is firmware's and is cut to size; a UUID that
// contradicts a known one is an error, because it means another machine answered.
func Apply(m *app.Machine, inv *agentv1.Inventory) error {
	u, _ := app.ParseUUID(inv.System.UUID) // a malformed UUID identifies nothing
	if u != "" && m.UUID != "" && !m.UUID.Same(u) {
		return app.Errorf(app.Conflict, "another-machine", "the machine that answered has UUID %s, %s is enrolled with %s", u, m.Name, m.UUID).
			Do("check which BMC belongs to which machine; after a change of its mainboard, let its UUID be learned anew with bcd machine set %s --productUuid ''", m.Name)
	}
	for _, f := range []struct {
		name string
		at   *string
		says string
	}{
		{"vendor", &m.Vendor, metal.Clip(inv.System.Manufacturer)}, {"model", &m.Model, metal.Clip(inv.System.Product)},
		{"serial", &m.Serial, app.CleanSerial(metal.Clip(inv.System.Serial))}, {"productUuid", (*string)(&m.UUID), string(u)},
	} {
		switch source := m.Sources[f.name]; {
		case f.says != "":
			*f.at = f.says
			m.From(f.name, drivers.IDRamdisk)
		case f.name != "productUuid" && (source == "" || source == drivers.IDRamdisk): // what its BMC said stays
			*f.at = ""
		}
	}
	m.Firmware = app.FirmwareBIOS
	if inv.Firmware == string(app.FirmwareUEFI) {
		m.Firmware = app.FirmwareUEFI
	}
	applyNICs(m, inv)
	sum := app.HardwareSummary{MemoryBytes: inv.Memory.Bytes}
	for _, c := range inv.CPUs {
		sum.CPUs += c.Threads
		sum.CPUModel = metal.Clip(c.Model)
	}
	for _, d := range inv.Disks {
		if !d.Removable && !d.Virtual {
			sum.Disks++
			sum.DiskBytes += d.Bytes
		}
	}
	m.Summary = sum
	return nil
}

func applyNICs(m *app.Machine, inv *agentv1.Inventory) {
	known := map[app.MAC]int{}
	for i, n := range m.NICs {
		known[n.MAC] = i
	}
	for _, n := range inv.NICs {
		mac, err := app.ParseMAC(n.MAC)
		if err != nil || n.BMCUSB || n.Virtual {
			continue
		}
		i, ok := known[mac]
		if !ok && len(m.NICs) >= metal.MaxNICs {
			continue
		}
		if !ok {
			m.NICs = append(m.NICs, app.NIC{MAC: mac, Source: "inventory"})
			i = len(m.NICs) - 1
			known[mac] = i
		}
		m.NICs[i].Name, m.NICs[i].Confirmed, m.NICs[i].Boot = metal.Clip(n.Name), true, n.Boot
	}
}
