package metal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/store"
)

var (
	efiNet    = agentv1.BootEntry{ID: "Boot0001", Name: "PXEv4", Kind: app.BootNetwork, Protocol: "PXE IPv4", MAC: "00:00:5e:00:53:01", Path: "MAC(00005e005301,0x1)/IPv4(0.0.0.0)"}
	efiDisk   = agentv1.BootEntry{ID: "Boot0002", Name: "NVMe", Kind: app.BootDisk, Path: "NVMe(0x1)"}
	efiDebian = agentv1.BootEntry{ID: "Boot0005", Name: "debian", Kind: app.BootSystem, Partition: "gpt:1", File: `\EFI\debian\shimx64.efi`, Path: `HD(1,GPT,1,0x800,0x1)/\EFI\debian\shimx64.efi`}
)

// firmware is a machine's, and the ramdisk's agent that keeps it.
type firmware struct {
	kind    string
	entries []agentv1.BootEntry // in the order they are tried
	disk    []agentv1.BootPartition
	refuses string // reason for which it takes no write
	writes  int
}

func (f *firmware) view() (v agentv1.BootView) {
	for _, e := range f.entries {
		v.Entries, v.Order = append(v.Entries, e), append(v.Order, e.ID)
	}
	return v
}

// keep answers agent.boot-order.
func (f *firmware) keep(o agentv1.BootOrder) agentv1.BootOrderResult {
	r := agentv1.BootOrderResult{Firmware: f.kind, Found: f.view(), Partitions: f.disk}
	if f.kind != "uefi" || !o.Write {
		return r
	}
	left := slices.DeleteFunc(slices.Clone(f.entries), func(e agentv1.BootEntry) bool { return slices.Contains(o.Remove, e.Partition) })
	var v app.BootView
	var own []app.BootEntry
	for _, e := range left {
		v.Entries, v.Order = append(v.Entries, app.BootEntry(e)), append(v.Order, e.ID)
	}
	for _, e := range o.Own {
		own = append(own, app.BootEntry(e))
	}
	var next []agentv1.BootEntry
	for _, id := range app.PlanBootOrder(app.BootPolicy(o.Policy), own, v) {
		next = append(next, left[slices.IndexFunc(left, func(e agentv1.BootEntry) bool { return e.ID == id })])
	}
	if slices.Equal(next, f.entries) {
		return r
	}
	if f.refuses != "" {
		r.Problem = &agentv1.Error{Code: "CONFLICT", Reason: f.refuses, Message: "the firmware took nothing", WayOut: "see its setup"}
	} else {
		f.entries, f.writes = next, f.writes+1
	}
	now := f.view()
	r.Now = &now
	return r
}

// orderBMC is a BMC that takes a boot order.
type orderBMC struct {
	order  []string
	writes int
	fault  error
}

func (*orderBMC) SetBootDevice(*driver.Context, driver.BootDevice, driver.BootOptions) (driver.BootResult, error) {
	return driver.BootResult{}, nil
}

func (b *orderBMC) BootOrder(*driver.Context) (driver.BootOrder, error) {
	o := driver.BootOrder{Order: slices.Clone(b.order), Writable: true, Options: []driver.BootOption{
		{ID: "NIC.1", Name: "NIC in slot 1", Kind: app.BootNetwork, Path: "NIC in slot 1"}, {ID: "Disk.1", Name: "Disk 1", Kind: app.BootDisk, Path: "Disk 1"},
		{ID: "debian", Name: "debian", Kind: app.BootSystem, Path: efiDebian.Path, Partition: "gpt:1"},
	}}
	return o, b.fault
}

func (b *orderBMC) SetBootOrder(ctx *driver.Context, order []string) (driver.BootOrder, error) {
	b.order, b.writes = slices.Clone(order), b.writes+1
	return b.BootOrder(ctx)
}

// orderly is a machine whose boot order is kept.
type orderly struct {
	t      *testing.T
	p      *metal.Ports
	d      *desk
	db     *store.DB
	f      *firmware
	bmc    *orderBMC // nil: it has none that takes an order
	events []app.Event
}

func newOrderly(t *testing.T, f *firmware, bmc *orderBMC) *orderly {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := &orderly{t: t, d: &desk{kinds: map[string]workflow.Kind{}}, db: db, f: f, bmc: bmc}
	reg := drivers.New(drivers.Config{Secrets: noSecrets{}, Profiles: noProfiles{}})
	m := &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady}
	if bmc != nil {
		def, err := driver.Define(driver.Definition{ID: "acme", Version: "1.0.0", RunsOn: "site", Config: []byte(`{"type":"object"}`),
			Implements: map[string]driver.Factory{"management": func(json.RawMessage) (any, error) { return bmc, nil }}})
		if err == nil {
			err = reg.Register(def, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		m.BMC = &app.BMC{Driver: "acme", Address: "192.0.2.10", CredentialRef: "secret://root/bmc"}
		res, err := reg.Resolve(t.Context(), drivers.InputOf(m))
		if err != nil {
			t.Fatal(err)
		}
		m.Drivers = res.Bindings
	}
	if err := db.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	o.p = &metal.Ports{Machines: db, BootOrders: db, Drivers: reg, Flows: o.d, Now: time.Now, Record: func(e app.Event) { o.events = append(o.events, e) },
		Supports: func(_ context.Context, m *app.Machine, ops ...string) error { return reg.Check(m, ops...) }}
	o.p.Register()
	return o
}

// turn is the context of one of the two steps.
type turn struct {
	workflow.StepContext
	cmd    workflow.Command
	flow   workflow.Workflow
	result any
}

func (x *turn) Command() workflow.Command   { return x.cmd }
func (x *turn) Workflow() workflow.Workflow { return x.flow }
func (x *turn) Log(string, ...any)          {}
func (x *turn) Result(_ string, into any) bool {
	raw, err := json.Marshal(x.result)
	return err == nil && x.result != nil && json.Unmarshal(raw, into) == nil
}

// during runs the two steps of a verb, the note twice: the process may have ended before its end was written down.
func (o *orderly) during(verb string, use metal.BootOrderUse) *app.BootOrder {
	o.t.Helper()
	m, err := o.db.Machine(o.t.Context(), "m-1")
	if err != nil {
		o.t.Fatal(err)
	}
	steps := o.p.BootOrderSteps(m, nil, use)
	flow := workflow.Workflow{ID: "wf-" + verb, Verb: verb, Actor: "alice", Steps: steps}
	x := &turn{flow: flow, cmd: workflow.Command{MachineID: m.ID, WorkflowID: flow.ID, StepID: steps[0].ID, Payload: steps[0].Payload, NotAfter: time.Now().Add(time.Hour)}}
	first, err := o.d.kinds[agentv1.KindBootOrder].Prepare(o.t.Context(), x)
	if err != nil {
		o.t.Fatal(err)
	}
	x.result = o.f.keep(first.(agentv1.BootOrder))
	x.cmd.StepID, x.cmd.Payload = steps[1].ID, steps[1].Payload
	for range 2 {
		if _, err := o.d.kinds[metal.KindBootNote].Run(o.t.Context(), x); err != nil {
			o.t.Fatal(err)
		}
	}
	b, err := o.db.BootOrder(o.t.Context(), "m-1")
	if err != nil {
		o.t.Fatal(err)
	}
	return b
}

func (o *orderly) owns(disk app.DiskID) {
	o.t.Helper()
	if _, err := o.db.UpdateMachine(o.t.Context(), "m-1", func(m *app.Machine) error { m.OwnDisks = []app.DiskID{disk}; return nil }); err != nil {
		o.t.Fatal(err)
	}
}

// A life: found at commissioning, changed by the system's first boot, put back, and cleared at release.
func TestBootOrderOfALife(t *testing.T) {
	f := &firmware{kind: "uefi", entries: []agentv1.BootEntry{efiNet, efiDisk}}
	o := newOrderly(t, f, nil)
	b := o.during("commission", metal.BootOrderUse{Adopt: true})
	if b.Writer != app.BootByAgent || b.Policy != app.BootAsFound || b.Changed != nil || b.Problem != nil || len(b.Own) != 2 || f.writes != 0 || b.Firmware != app.FirmwareUEFI {
		t.Fatalf("%+v", b)
	}
	o.owns(app.DiskID{Serial: "S1"})
	f.disk = []agentv1.BootPartition{{Partition: "gpt:1", Disk: agentv1.DiskTarget{Serial: "S1", Name: "vda"}}, {Partition: "gpt:9", Disk: agentv1.DiskTarget{Serial: "OTHER"}}}
	if b = o.during("deploy", metal.BootOrderUse{}); len(b.Partitions) != 1 || b.Partitions[0].Partition != "gpt:1" {
		t.Fatalf("%+v", b.Partitions)
	}
	f.entries = []agentv1.BootEntry{efiDebian, efiNet, efiDisk} // what its first boot did
	b = o.during("release", metal.BootOrderUse{Prefix: "before-"})
	if got := b.Words(b.View()); f.writes != 1 || len(got) != 3 || got[2] != `debian (disk S1, \EFI\debian\shimx64.efi)` || b.Changed == nil || b.Changed.By != "bcd" {
		t.Fatalf("%d writes, %q, %+v", f.writes, got, b.Changed)
	}
	f.disk = nil // wiped
	b = o.during("release", metal.BootOrderUse{Drop: true})
	if got := b.Words(b.View()); f.writes != 2 || len(got) != 2 || len(b.Partitions) != 0 || b.Problem != nil {
		t.Fatalf("%d writes, %q, %+v", f.writes, got, b)
	}
	history, err := o.db.BootReadings(t.Context(), "m-1", 50)
	if err != nil || len(history) != 8 {
		t.Fatalf("%d readings, %v", len(history), err)
	}
	by := ""
	for _, r := range history {
		for _, c := range r.Changes {
			by = c.By + ":" + strings.Join(c.What, ",") + "\n" + by
		}
	}
	if !strings.Contains(by, "system:debian (\\EFI\\debian\\shimx64.efi) was added, at 1") || !strings.Contains(by, "bcd:") {
		t.Errorf("history:\n%s", by)
	}
	if len(o.events) == 0 || o.events[0].Kind != "machine.boot-order" || o.events[0].Actor != "alice" {
		t.Errorf("%+v", o.events)
	}
}

// What commissioning finds is ours, but not a system that moved itself since.
func TestCommissioningAdoptsWhatPeopleChanged(t *testing.T) {
	f := &firmware{kind: "uefi", entries: []agentv1.BootEntry{efiNet, efiDisk}}
	o := newOrderly(t, f, nil)
	o.during("commission", metal.BootOrderUse{Adopt: true})
	f.entries = []agentv1.BootEntry{efiDebian, efiDisk, efiNet}
	b := o.during("commission", metal.BootOrderUse{Adopt: true})
	if len(b.Own) != 3 || b.Own[0].ID != "Boot0002" || b.Own[1].ID != "Boot0001" || b.Own[2].ID != "Boot0005" {
		t.Errorf("ours is %+v", b.Own)
	}
}

// A ramdisk of a hostile machine says more than any firmware has: what is kept, told and shown of it has its bounds.
func TestABootOrderWithoutEnd(t *testing.T) {
	f := &firmware{kind: "uefi", entries: []agentv1.BootEntry{efiNet, efiDisk, {ID: "Boot0003", Name: "long", Kind: app.BootDisk, Path: strings.Repeat("p", 1<<20)}, {ID: strings.Repeat("B", 1<<20), Name: "named"}}}
	o := newOrderly(t, f, nil)
	o.during("commission", metal.BootOrderUse{Adopt: true})
	for n := range 20_000 {
		f.entries = append(f.entries, agentv1.BootEntry{ID: fmt.Sprintf("Boot%04X", n+16), Name: fmt.Sprint("disk ", n), Kind: app.BootDisk, Path: fmt.Sprint("NVMe ", n)})
	}
	b := o.during("deploy", metal.BootOrderUse{})
	history, err := o.db.BootReadings(t.Context(), "m-1", 64)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := json.Marshal([]any{b, history, o.events})
	if err != nil || len(doc) > 1<<20 || len(b.Agent.Entries) > 256 || len(b.Agent.Order) > 256 || b.Own[0].ID != "Boot0001" || b.Own[1].ID != "Boot0002" {
		t.Errorf("%d bytes are kept, %d entries, %v", len(doc), len(b.Agent.Entries), err)
	}
}

// A machine's own policy counts, and what it had before is known still.
func TestNetworkFirst(t *testing.T) {
	f := &firmware{kind: "uefi", entries: []agentv1.BootEntry{efiDisk, efiNet}}
	o := newOrderly(t, f, nil)
	if _, err := o.db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.BootOrder = app.BootNetworkFirst; return nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b := o.during("commission", metal.BootOrderUse{Adopt: true})
		if b.Policy != app.BootNetworkFirst || b.Agent.Order[0] != "Boot0001" || b.Own[0].ID != "Boot0002" || f.writes != 1 {
			t.Errorf("%d writes, %+v", f.writes, b)
		}
	}
}

// No verb fails by firmware that takes nothing: it stands on the machine, and goes when it is over.
func TestFirmwareThatTakesNothingIsAProblemOfTheMachine(t *testing.T) {
	f := &firmware{kind: "uefi", entries: []agentv1.BootEntry{efiNet, efiDisk}}
	o := newOrderly(t, f, nil)
	o.during("commission", metal.BootOrderUse{Adopt: true})
	f.entries, f.refuses = []agentv1.BootEntry{efiDebian, efiNet, efiDisk}, app.ReasonNVRAMFull
	b := o.during("deploy", metal.BootOrderUse{})
	if b.Problem == nil || b.Problem.Reason != app.ReasonNVRAMFull || b.Problem.WayOut == "" || b.Writer != app.BootByAgent {
		t.Fatalf("%+v", b)
	}
	if all, err := o.db.BootOrderProblems(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	f.refuses = ""
	if b = o.during("deploy", metal.BootOrderUse{}); b.Problem != nil || f.writes != 1 {
		t.Errorf("%+v", b)
	}
	if all, _ := o.db.BootOrderProblems(t.Context()); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// Locked variables make the BMC the one writer, for good: the agent only reads from then on.
func TestTheBMCWritesWhereTheAgentCannot(t *testing.T) {
	f := &firmware{kind: "uefi", entries: []agentv1.BootEntry{efiNet, efiDisk}}
	bmc := &orderBMC{order: []string{"NIC.1", "Disk.1"}}
	o := newOrderly(t, f, bmc)
	b := o.during("commission", metal.BootOrderUse{Adopt: true})
	if b.Writer != app.BootByAgent || b.BMC == nil || len(b.BMC.Entries) != 3 || bmc.writes != 0 {
		t.Fatalf("%+v", b)
	}
	f.entries, f.refuses = []agentv1.BootEntry{efiDebian, efiNet, efiDisk}, app.ReasonNVRAMReadOnly
	bmc.order = []string{"debian", "NIC.1", "Disk.1"}
	b = o.during("deploy", metal.BootOrderUse{})
	if b.Writer != app.BootByBMC || b.WriterReason == "" || b.Problem != nil || !slices.Equal(bmc.order, []string{"NIC.1", "Disk.1", "debian"}) {
		t.Fatalf("%v, %+v", bmc.order, b)
	}
	f.refuses, f.writes = "", 0
	bmc.order = []string{"debian", "NIC.1", "Disk.1"}
	if b = o.during("deploy", metal.BootOrderUse{}); f.writes != 0 || b.Writer != app.BootByBMC || bmc.order[0] != "NIC.1" {
		t.Errorf("two writers: %d writes by the agent, %+v", f.writes, b)
	}
}

func TestABIOSMachineIsTheBMCs(t *testing.T) {
	f := &firmware{kind: "bios"}
	bmc := &orderBMC{order: []string{"NIC.1", "Disk.1"}}
	o := newOrderly(t, f, bmc)
	if b := o.during("commission", metal.BootOrderUse{Adopt: true}); b.Writer != app.BootByBMC || len(b.Own) != 2 || bmc.writes != 0 {
		t.Fatalf("%+v", b)
	}
	bmc.order = []string{"debian", "NIC.1", "Disk.1"}
	b := o.during("deploy", metal.BootOrderUse{})
	if !slices.Equal(bmc.order, []string{"NIC.1", "Disk.1", "debian"}) || bmc.writes != 1 || b.Problem != nil || b.Changed == nil {
		t.Errorf("%v, %d writes, %+v", bmc.order, bmc.writes, b)
	}
	bmc.fault = driver.Errorf(driver.CodeUnreachable, "the BMC does not answer")
	if b = o.during("release", metal.BootOrderUse{}); b.Problem == nil {
		t.Errorf("%+v", b)
	}
	o = newOrderly(t, f, nil)
	if b := o.during("commission", metal.BootOrderUse{Adopt: true}); b.Writer != app.BootByNone || b.Problem != nil || b.View() != nil {
		t.Errorf("%+v", b)
	}
}
