package metal

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// KindBootNote stores what the agent found of the boot order, reads the BMC's, and writes there when the BMC is the writer.
const KindBootNote = "boot-order.note"

// operBootOrder is what a BMC that takes a boot order serves.
const operBootOrder = "management.setBootOrder"

// bmcOrderTime bounds what is asked of a BMC: many take a second for each boot option.
const bmcOrderTime = 90 * time.Second

// bootStep is the payload of both steps: what was decided when the workflow was planned, so that a delivery that is repeated
// is the same.
type bootStep struct {
	Policy app.BootPolicy `json:"policy"`
	Why    string         `json:"why"`
	// Drop lets entries of disks that were wiped be removed.
	Drop bool `json:"drop,omitempty"`
	// Adopt takes what is found for ours, but for systems that moved themselves.
	Adopt bool         `json:"adopt,omitempty"`
	Wiped []app.DiskID `json:"wiped,omitempty"` // disks that the verb wipes besides the machine's own
}

// BootOrderUse says what a verb does with the boot order.
type BootOrderUse struct {
	Prefix string // of the steps' ids, for a verb that does it twice
	Title  string // of the agent's step
	Adopt  bool   // commissioning: what is found is ours
	Drop   bool   // release: the disk that entries are for is wiped
	Wiped  []app.DiskID
}

// BootOrderSteps reads a machine's boot order in its ramdisk and puts ours back, then stores it with the BMC's view. None of it
// fails the verb: what is not as it should be stands on the machine.
func (p *Ports) BootOrderSteps(m *app.Machine, profile *app.Profile, use BootOrderUse) []workflow.Step {
	b := bootStep{Drop: use.Drop, Adopt: use.Adopt, Wiped: use.Wiped}
	var of app.BootPolicy
	if profile != nil {
		of = profile.BootOrder
	}
	b.Policy, b.Why = app.BootPolicyFor(m.BootOrder, of, bootsOnce(m))
	return []workflow.Step{
		OnAgent(use.Prefix+"boot-order", use.Title, agentv1.KindBootOrder, b),
		{ID: use.Prefix + "boot-order-note", Title: "Note the boot order", Kind: KindBootNote, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true, Payload: payload(b)},
	}
}

// bootsOnce reports whether a machine's BMC can have the network booted once. One that says nothing of it is believed to.
func bootsOnce(m *app.Machine) bool {
	var c driver.Card
	if json.Unmarshal(m.Card, &c) != nil {
		return true
	}
	once := c.Boot.Enabled == nil || slices.Contains(c.Boot.Enabled, "Once")
	return once && (c.Boot.Targets == nil || slices.Contains(c.Boot.Targets, "Pxe") || slices.Contains(c.Boot.Targets, "UefiHttp"))
}

func (p *Ports) registerBootOrder() {
	p.Flows.Register(workflow.Kind{Name: agentv1.KindBootOrder, Budget: 2 * time.Minute, Prepare: p.prepareBootOrder})
	p.Flows.Register(workflow.Kind{Name: KindBootNote, Budget: BMCCall + time.Minute, Run: p.runBootNote})
}

// bootState reads what is known of a machine's boot order; an empty state before it was first read.
func (p *Ports) bootState(ctx context.Context, m *app.Machine) (*app.BootOrder, error) {
	b, err := p.BootOrders.BootOrder(ctx, m.ID)
	if app.CodeOf(err) == app.NotFound {
		return &app.BootOrder{MachineID: m.ID}, nil
	}
	return b, err
}

// bootStepOf reads what a step of the boot order is for, its machine, and what is known of that.
func (p *Ports) bootStepOf(ctx context.Context, s workflow.StepContext) (use bootStep, m *app.Machine, b *app.BootOrder, err error) {
	if err = json.Unmarshal(s.Command().Payload, &use); err != nil {
		return use, nil, nil, err
	}
	if m, err = p.Machine(ctx, s); err != nil {
		return use, nil, nil, err
	}
	b, err = p.bootState(ctx, m)
	return use, m, b, err
}

// prepareBootOrder completes the agent's order. What it depends on is changed by the note that follows it, and not before.
func (p *Ports) prepareBootOrder(ctx context.Context, s workflow.StepContext) (any, error) {
	use, _, b, err := p.bootStepOf(ctx, s)
	if err != nil {
		return nil, err
	}
	w, _ := app.BootWriterFor(app.BootWriterFacts{Recorded: b.Writer, Reason: b.WriterReason, BMC: true})
	o := agentv1.BootOrder{Write: w == app.BootByAgent, Policy: string(use.Policy)}
	for _, e := range b.Own {
		o.Own = append(o.Own, agentv1.BootEntry(e))
	}
	if use.Drop {
		for _, own := range b.Partitions {
			o.Remove = append(o.Remove, own.Partition)
		}
	}
	return o, nil
}

// runBootNote stores what was found. It can be done again at any time: the state it starts from is read anew, and a reading
// that was stored twice only stands twice in the history.
func (p *Ports) runBootNote(ctx context.Context, s workflow.StepContext) (any, error) {
	use, m, b, err := p.bootStepOf(ctx, s)
	if err != nil {
		return nil, err
	}
	w := s.Workflow()
	n := &note{p: p, s: s, m: m, b: b, use: use, during: w.Verb, now: p.Now().UTC()}
	if err := n.take(ctx, &w); err != nil {
		return nil, err
	}
	n.bmc(ctx)
	r := n.reading()
	if err := p.BootOrders.PutBootOrder(ctx, b, r); err != nil {
		return nil, err
	}
	n.tell()
	return map[string]any{"order": r.Order, "writer": b.Writer}, nil
}
