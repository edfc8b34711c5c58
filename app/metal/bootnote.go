package metal

import (
	"context"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Who changed a boot order.
const (
	byUs      = "bcd"
	bySystem  = "system"
	byOutside = "outside" // firmware, or a person at it
)

// The bounds of a boot order as it is kept. A ramdisk or a BMC may say anything.
const (
	maxBootEntries = 256
	maxBootText    = 2048 // bytes of one entry
	maxBootID      = 256  // bytes
	maxBootNotes   = 16
)

// maxOwnPartitions bounds the partitions that are remembered of a machine's disks.
const maxOwnPartitions = 256

// note turns what was read into a machine's new state.
type note struct {
	p       *Ports
	s       workflow.StepContext
	m       *app.Machine
	b       *app.BootOrder
	use     bootStep
	during  string
	now     time.Time
	changes []app.BootChange
}

// take takes over what the agent said. A step that was skipped leaves the state as it was.
func (n *note) take(ctx context.Context, w *workflow.Workflow) error {
	var r agentv1.BootOrderResult
	at := slices.IndexFunc(w.Steps, func(s workflow.Step) bool { return s.ID == n.s.Command().StepID })
	if at < 1 || !n.s.Result(w.Steps[at-1].ID, &r) {
		return app.Errorf(app.Conflict, "no-boot-order", "the agent gave no boot order").Do("retry the step")
	}
	b := n.b
	b.Policy, b.PolicyReason, b.Problem, b.Notes = n.use.Policy, n.use.Why, nil, nil
	b.Firmware = app.FirmwareBIOS
	if r.Firmware == string(app.FirmwareUEFI) {
		b.Firmware = app.FirmwareUEFI
	}
	facts := app.BootWriterFacts{Firmware: b.Firmware, Recorded: b.Writer, Reason: b.WriterReason, BMC: n.p.Supports(ctx, n.m, operBootOrder) == nil}
	if r.Problem != nil {
		b.Problem = &app.Error{Code: app.Code(r.Problem.Code), Reason: r.Problem.Reason, Message: Clip(r.Problem.Message), WayOut: Clip(r.Problem.WayOut)}
		facts.Failed = r.Problem.Reason
	}
	n.choose(facts)
	for _, p := range r.Partial[:min(len(r.Partial), maxBootNotes)] {
		b.Notes = append(b.Notes, Clip(p))
	}
	if w := r.Found.Timeout; w != nil && *w == app.BootWaits {
		b.Notes = append(b.Notes, "its firmware waits for a person before it boots anything: set its boot timeout in the firmware's setup")
	}
	n.owned(&r)
	if b.Firmware == app.FirmwareUEFI && facts.Failed != app.ReasonNVRAMUnavailable {
		n.seen(&r)
	}
	return nil
}

// choose settles who writes. What was ours in one writer's words means nothing to another, who begins with what it saw last.
func (n *note) choose(f app.BootWriterFacts) {
	b, was := n.b, n.b.Writer
	b.Writer, b.WriterReason = app.BootWriterFor(f)
	if was == "" || was == b.Writer {
		return
	}
	b.Own = nil
	if v := b.View(); v != nil {
		b.Own = v.Ordered()
	}
}

// seen compares what the agent found with what was known, and takes what is there now.
func (n *note) seen(r *agentv1.BootOrderResult) {
	b, found := n.b, n.view(r.Found)
	if b.Agent != nil {
		if what, system := app.BootChanges(*b.Agent, found); len(what) > 0 {
			by := byOutside
			if system {
				by = bySystem
			}
			n.changed(by, what)
		}
	}
	now := found
	if r.Now != nil {
		now = n.view(*r.Now)
		if what, _ := app.BootChanges(found, now); len(what) > 0 {
			n.changed(byUs, what)
		}
	}
	b.Agent = &now
	if b.Writer == app.BootByAgent {
		n.adopt(found)
	}
}

// adopt takes an order for ours: the first that was found, and what commissioning finds later, once systems are back in their
// places. While the network is put in front, what is found is what we made of it.
func (n *note) adopt(found app.BootView) {
	if n.b.Own == nil || n.use.Adopt && n.b.Problem == nil && n.b.Policy == app.BootAsFound {
		found.Order = app.PlanBootOrder(app.BootAsFound, n.b.Own, found)
		n.b.Own = found.Ordered()
	}
}

func (n *note) changed(by string, what []string) {
	c := app.BootChange{Time: n.now, By: by, What: what}
	n.changes, n.b.Changed = append(n.changes, c), &c
}

func (n *note) view(v agentv1.BootView) app.BootView {
	out := app.BootView{Time: n.now, During: n.during, Order: v.Order, Current: v.Current, Next: v.Next, Timeout: v.Timeout}
	for _, e := range v.Entries[:min(len(v.Entries), maxBootEntries)] {
		out.Entries = append(out.Entries, app.BootEntry(e))
	}
	return bounded(out)
}

// bounded leaves out of a boot order what no firmware has.
func bounded(v app.BootView) app.BootView {
	long := func(id string) bool { return len(id) > maxBootID }
	v.Order = slices.DeleteFunc(slices.Clone(v.Order[:min(len(v.Order), maxBootEntries)]), long)
	v.Entries = slices.DeleteFunc(v.Entries, func(e app.BootEntry) bool {
		return long(e.ID) || len(e.Name)+len(e.Kind)+len(e.Protocol)+len(e.MAC)+len(e.Partition)+len(e.File)+len(e.Path) > maxBootText
	})
	v.Current, v.Next = Clip(v.Current), Clip(v.Next)
	return v
}

// owned remembers the partitions of disks that deploys of this machine wrote: once the disk is wiped nothing else tells whose
// they were. They are forgotten when a release has removed their entries.
func (n *note) owned(r *agentv1.BootOrderResult) {
	b, disks := n.b, append(slices.Clone(n.m.OwnDisks), n.use.Wiped...)
	for _, p := range r.Partitions {
		i := slices.IndexFunc(disks, func(d app.DiskID) bool { return d.Is(p.Disk.Serial, p.Disk.WWN, p.Disk.Name) })
		known := slices.ContainsFunc(b.Partitions, func(o app.OwnPartition) bool { return o.Partition == p.Partition })
		if i >= 0 && !known && len(b.Partitions) < maxOwnPartitions {
			b.Partitions = append(b.Partitions, app.OwnPartition{Partition: Clip(p.Partition), Disk: disks[i]})
		}
	}
	switch {
	case !n.use.Drop || len(r.Partial) > 0:
	case b.Writer == app.BootByAgent && b.Problem == nil:
		b.Partitions = nil
	case b.Writer == app.BootByBMC && b.Firmware == app.FirmwareUEFI:
		b.Notes = append(b.Notes, "entries of the wiped disk stay: a BMC takes an order, and removes nothing from it")
	}
}

// bmc reads the BMC's view and, when the BMC is the writer, puts ours back there. A BMC that cannot be asked is a note.
func (n *note) bmc(ctx context.Context) {
	if n.p.Supports(ctx, n.m, operBootOrder) != nil {
		n.b.BMC = nil
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bmcOrderTime)
	defer cancel()
	h := n.p.Drivers.For(n.m, CallOf(n.s.Command())).Management()
	o, err := h.BootOrder(ctx)
	switch {
	case app.CodeOf(err) == app.Unsupported:
		n.b.BMC = nil
		if n.b.Writer == app.BootByBMC {
			n.b.Writer, n.b.WriterReason = app.BootByNone, "its BMC takes no boot order"
		}
		return
	case err != nil:
		n.fault(err)
		return
	}
	found := n.bmcView(o)
	if n.b.Writer != app.BootByBMC {
		n.b.BMC = &found
		return
	}
	n.writeBMC(ctx, found)
}

// writeBMC lets the BMC, the machine's one writer, put ours back.
func (n *note) writeBMC(ctx context.Context, found app.BootView) {
	n.compareBMC(found)
	n.b.BMC = &found
	want := app.PlanBootOrder(n.b.Policy, n.b.Own, found)
	if !slices.Equal(want, found.Order) {
		o, err := n.p.Drivers.For(n.m, CallOf(n.s.Command())).Management().SetBootOrder(ctx, want)
		if err != nil {
			n.fault(err)
			return
		}
		now := n.bmcView(o)
		what, _ := app.BootChanges(found, now)
		n.changed(byUs, what)
		n.b.BMC = &now
	}
	if n.b.Agent != nil {
		n.b.Problem = nil // what the agent could not write, the BMC did
	}
	n.adopt(found)
}

func (n *note) compareBMC(found app.BootView) {
	if n.b.BMC == nil {
		return
	}
	if what, system := app.BootChanges(*n.b.BMC, found); len(what) > 0 {
		by := byOutside
		if system {
			by = bySystem
		}
		n.changed(by, what)
	}
}

// fault notes why the BMC's order was not read or not written; it is a problem when the BMC is the writer.
func (n *note) fault(err error) {
	e, ok := app.AsError(err)
	if !ok {
		e = app.Errorf(app.Unavailable, "boot-order-not-kept", "the BMC's boot order could not be kept: %w", err)
	}
	if n.b.Writer == app.BootByBMC {
		n.b.Problem = &app.Error{Code: e.Code, Reason: e.Reason, Message: Clip(e.Message), WayOut: Clip(e.WayOut)}
		return
	}
	n.b.Notes = append(n.b.Notes, "the BMC's boot order was not read: "+Clip(e.Message))
}

func (n *note) bmcView(o driver.BootOrder) app.BootView {
	v := app.BootView{Time: n.now, During: n.during, Order: o.Order}
	for _, x := range o.Options[:min(len(o.Options), maxBootEntries)] {
		v.Entries = append(v.Entries, app.BootEntry{
			ID: x.ID, Name: Clip(x.Name), Kind: x.Kind, Protocol: x.Protocol, MAC: x.MAC, Partition: x.Partition, Path: x.Path, Inactive: x.Disabled,
		})
	}
	return bounded(v)
}

// reading is the line of the history.
func (n *note) reading() *app.BootReading {
	r := &app.BootReading{WorkflowID: n.s.Command().WorkflowID, Time: n.now, During: n.during, Order: []string{}, Changes: n.changes, Problem: n.b.Problem}
	if v := n.b.View(); v != nil {
		for _, e := range v.Ordered() {
			r.Order = append(r.Order, e.Title())
		}
	}
	return r
}

// tell puts what changed, and what is wrong, where people see it.
func (n *note) tell() {
	for _, c := range n.changes {
		for _, w := range c.What {
			n.s.Log("boot order, changed by %s: %s", c.By, w)
		}
		n.event("machine.boot-order", "info", "the boot order of "+n.m.Name+" was changed by "+c.By+": "+sentences(c.What))
	}
	if e := n.b.Problem; e != nil {
		n.s.Log("the boot order is not as it should be: %s", e.Error())
		n.event("machine.boot-order", "warn", "the boot order of "+n.m.Name+" is not as it should be: "+e.Message)
	}
}

func (n *note) event(kind, level, message string) {
	if n.p.Record != nil {
		n.p.Record(app.Event{Time: n.now, Kind: kind, Level: level, MachineID: n.m.ID, Workflow: n.s.Command().WorkflowID, Actor: n.s.Workflow().Actor, Message: message})
	}
}

// sentences joins the first few.
func sentences(what []string) string {
	const shown = 4
	out := ""
	for i, w := range what {
		if i == shown {
			return out + "; and more"
		}
		if i > 0 {
			out += "; "
		}
		out += w
	}
	return out
}
