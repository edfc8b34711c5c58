// Package metal holds what the verbs of a machine's life share: the ports they work through, the step kinds that drive
// power, boot device and agent, and the rules by which a workflow's end becomes a machine's state.
//
// Each verb is a package below this one: what it requires, its workflow, its own steps.
package metal

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
)

// Hardware is one machine's power and boot device, through whichever drivers it is bound to. Each write returns after
// its effect was read back.
type Hardware interface {
	Power(ctx context.Context) (app.Power, error)
	// SetPower takes "on", "off", "soft", "cycle", "reset". Off when off and on when on are successes.
	SetPower(ctx context.Context, action string) error
	// SetBootDevice takes "pxe", "disk", "cdrom", "bios". firmware "" leaves the boot mode as it is.
	SetBootDevice(ctx context.Context, device string, persistent bool, firmware app.Firmware) error
}

// Boots mints and revokes the permission to netboot; app/agent implements it.
type Boots interface {
	Mint(ctx context.Context, b app.Boot) (*app.Boot, error)
	Revoke(ctx context.Context, machineID string) error
}

// Ports is what the verbs work through. Every field is required.
type Ports struct {
	Machines app.MachineStore
	Agents   app.AgentStore
	Boots    Boots
	Flows    Flows
	// Drivers makes a machine's drivers callable, plans calls of them and knows which hardware profile applies.
	Drivers *drivers.Registry
	// Hardware binds a machine's drivers for one call, which call describes to them.
	Hardware func(ctx context.Context, m *app.Machine, call drivers.Options) (Hardware, error)
	// Supports refuses, with UNSUPPORTED, a verb whose BMC operations no driver of the machine serves.
	Supports func(ctx context.Context, m *app.Machine, operations ...string) error
	// SiteAddress is this site's own address as the machine's provisioning network sees it.
	SiteAddress func(ctx context.Context, m *app.Machine) (string, error)
	// BootOrders keeps what is known of machines' boot orders.
	BootOrders app.BootOrderStore
	// Certificates keeps what releases erased.
	Certificates app.CertificateStore
	// Record writes an event to the audit trail. May be nil.
	Record func(app.Event)
	// CD boots machines whose boot driver is virtual-media-boot.
	CD BootCD
	// Verdict says how far a machine's boot came, in a sentence, and what a person can do; "" when nothing is known. May be nil.
	Verdict func(ctx context.Context, machineID string) (sentence, wayOut string)
	// arguments are those of the ramdisk's operations that the site makes, by operation.
	arguments map[string]Arguments
	// AskPort puts down that a port of owner was seen in m, for a person to answer; it is in m's timeline then. May be nil.
	AskPort func(ctx context.Context, mac app.MAC, owner, m *app.Machine)
	Now     func() time.Time
}

// Flows is the part of the engine the verbs use.
type Flows interface {
	workflow.API
	Register(workflow.Kind)
	RegisterVerb(workflow.Verb)
}

// Deadlines of the design's table.
const (
	AgentUp      = 20 * time.Minute
	WriteStall   = 5 * time.Minute
	OSAlive      = 20 * time.Minute
	OSPhonedHome = 45 * time.Minute
	PowerChange  = 5 * time.Minute
	BMCCall      = 2 * time.Minute
)

// From refuses a verb on a machine that is locked for it, busy, or in a state the verb does not start from.
func From(m *app.Machine, verb string, destructive bool, states ...app.State) error {
	if m.WorkflowID != "" {
		return app.Errorf(app.Conflict, "machine-busy", "%s is busy: %s", m.Name, m.State).
			Do("wait for its workflow to end, or abort it")
	}
	if destructive && m.Locked {
		return app.Errorf(app.Conflict, "machine-locked", "%s is locked: %s", m.Name, m.LockReason).Do("unlock it first")
	}
	for _, s := range states {
		if m.State == s {
			return nil
		}
	}
	return app.Errorf(app.Conflict, "wrong-state", "%s cannot start on %s while it is %s", verb, m.Name, m.State).
		Do("%s starts from %s", verb, list(states))
}

func list(states []app.State) string {
	out := ""
	for i, s := range states {
		switch {
		case i > 0 && i == len(states)-1:
			out += " or "
		case i > 0:
			out += ", "
		}
		out += string(s)
	}
	return out
}

// Enter moves a machine into a verb's transient state, remembering where it came from.
func Enter(m *app.Machine, w *workflow.Workflow, to app.State, now time.Time) {
	m.Before = m.State
	m.State, m.StateSince, m.StateReason, m.FailedVerb = to, now, "", ""
	m.WorkflowID = w.ID
}

// Leave moves a machine out of a verb. done is the state of success; dirty says that an abort cannot return to where the
// machine was, because the verb had begun to change its disks; steps of a hardware profile that do are seen here.
func Leave(m *app.Machine, w *workflow.Workflow, done app.State, dirty bool, now time.Time) {
	m.WorkflowID, m.StateSince = "", now
	dirty = dirty || ChangedDisks(w)
	switch {
	case w.State == workflow.Done:
		m.State, m.StateReason, m.FailedVerb, m.Before, m.ISO = done, "", "", "", nil
	case w.State == workflow.Aborted && !dirty && m.Before != "" && m.Before != app.StateFailed:
		m.State, m.StateReason, m.FailedVerb, m.Before = m.Before, "", "", ""
	default:
		m.State, m.FailedVerb = app.StateFailed, w.Verb
		m.StateReason = reason(w, dirty)
	}
}

func reason(w *workflow.Workflow, dirty bool) string {
	switch {
	case w.State == workflow.Aborted && dirty:
		return fmt.Sprintf("%s was aborted after it had begun to change the disk", w.Verb)
	case w.State == workflow.Aborted:
		return fmt.Sprintf("%s was aborted; the machine had failed before it", w.Verb)
	}
	if w.Error != nil {
		return w.Error.Error()
	}
	return w.Verb + " failed"
}

// maxText bounds a string of firmware that is kept on a machine, in bytes.
const maxText = 128

// MaxNICs bounds the ports that are kept of a machine.
const MaxNICs = 64

// Clip cuts a string of firmware to the size that is kept.
func Clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// Reached reports whether a step of the workflow was ever started.
func Reached(w *workflow.Workflow, step string) bool {
	for _, s := range w.Steps {
		if s.ID == step {
			return s.State != workflow.StepWaiting
		}
	}
	return false
}
