// Package enroll takes machines on: it probes the BMC, pins its key, seals the credential, resolves the driver bindings and
// writes the machine, or leaves nothing behind.
package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/plugins/driver"
)

// probeTime is how long a BMC may take to say who it is.
const probeTime = time.Minute

// Config is what enrolment needs beyond the shared ports.
type Config struct {
	Network   app.NetworkStore
	Questions app.PortQuestionStore
	// Seal keeps a credential and gives its reference; Forget removes one that Seal made.
	Seal   func(ctx context.Context, name string, c Credentials) (ref string, err error)
	Forget func(ctx context.Context, ref string) error
	// Probe asks a BMC who it is, accepting its key on first use when none is pinned.
	Probe func(ctx context.Context, b app.BMC) (driver.Card, error)
	// Try is Probe with a typed login; nil: the one that is kept.
	Try func(ctx context.Context, b app.BMC, c *Credentials) (driver.Card, error)
	// Ref is the reference to a sealed credential by its name.
	Ref func(name string) string
	// Unsettled reports that a rotation left both the old and the new password of a machine's BMC, so that which of them it
	// takes is not known.
	Unsettled func(ctx context.Context, machineID string) (bool, error)
	// Left is told of a machine whose BMC is reached otherwise from now on, as it was.
	Left func(was *app.Machine)
	// Bind makes the machine's bindings and labels, in m, of the three layers, and validates them against the registry and
	// the drivers. With force a driver's own check may fail.
	Bind func(ctx context.Context, m *app.Machine, own map[string]app.Binding, force bool) error
}

// Credentials is a BMC login.
type Credentials struct{ Username, Password string }

// String keeps the password out of logs and errors.
func (c Credentials) String() string { return c.Username + ":[secret]" }

// Input describes a machine. The faces have checked the form of each field.
type Input struct {
	Name          string
	BMC           *app.BMC     // CredentialRef set when a reference was given
	Credentials   *Credentials // set when a login was typed
	Pool, Profile string
	Drivers       map[string]app.Binding
	MACs          []app.MAC
	UUID          app.UUID
	Firmware      app.Firmware // "" when not known
	Labels        map[string]string
	Note          string
	Force         bool // a driver's own check that fails is accepted
}

// Verbs enrolls machines.
type Verbs struct {
	p   *metal.Ports
	cfg Config
}

// New makes the verb. Enrolment is one call, not a workflow: nothing on the machine is changed.
func New(p *metal.Ports, cfg Config) *Verbs { return &Verbs{p, cfg} }

// Enroll probes and stores a machine.
func (v *Verbs) Enroll(ctx context.Context, in Input) (*app.Machine, error) {
	m := &app.Machine{
		ID: app.NewID("m"), Name: in.Name, State: app.StateEnrolled, Pool: in.Pool, Profile: in.Profile, Labels: in.Labels, Note: in.Note,
		UUID: in.UUID, Firmware: in.Firmware, Power: app.PowerUnknown, StateSince: v.p.Now().UTC(),
	}
	for _, mac := range in.MACs {
		m.NICs = append(m.NICs, app.NIC{MAC: mac, Confirmed: true, Source: "operator"})
	}
	if err := v.unknown(ctx, m); err != nil {
		return nil, err
	}
	if in.BMC != nil {
		b := *in.BMC
		m.BMC = &b
	}
	sealed, err := v.seal(ctx, m, in.Credentials)
	if err != nil {
		return nil, err
	}
	if err := v.finish(ctx, m, in); err != nil {
		if sealed != "" {
			err = errors.Join(err, v.cfg.Forget(context.WithoutCancel(ctx), sealed))
		}
		return nil, err
	}
	return m, nil
}

func (v *Verbs) finish(ctx context.Context, m *app.Machine, in Input) error {
	if m.BMC != nil {
		if err := v.probe(ctx, m); err != nil {
			return err
		}
	}
	own := in.Drivers
	if own == nil {
		own = map[string]app.Binding{}
	}
	if err := v.cfg.Bind(ctx, m, own, in.Force); err != nil {
		return err
	}
	return v.p.Machines.CreateMachine(ctx, m)
}

// unknown refuses a machine that is enrolled already under another name.
func (v *Verbs) unknown(ctx context.Context, m *app.Machine) error {
	same, err := v.p.Machines.MachinesByUUID(ctx, m.UUID)
	if err != nil {
		return err
	}
	if len(same) > 0 {
		return app.Errorf(app.Conflict, "uuid-taken", "product UUID %s belongs to machine %s", m.UUID, same[0].Name).
			At("productUuid").Do("use %s, or leave the UUID out if two boards share it", same[0].Name)
	}
	return nil
}

func (v *Verbs) seal(ctx context.Context, m *app.Machine, c *Credentials) (string, error) {
	if m.BMC == nil || c == nil {
		return "", nil
	}
	ref, err := v.cfg.Seal(ctx, Secret(m.ID), *c)
	m.BMC.CredentialRef = ref
	return ref, err
}

// probe asks the BMC and takes over what it says. MACs it names are proposals until an operator or the agent confirms them.
func (v *Verbs) probe(ctx context.Context, m *app.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	card, err := v.cfg.Probe(ctx, *m.BMC)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(card)
	if err != nil {
		return fmt.Errorf("encoding the capability card: %w", err)
	}
	m.Card = raw
	if m.BMC.SPKI == "" {
		m.BMC.SPKI = card.SPKI
	}
	m.Power, m.PowerReason, m.PowerSeen = app.Power(card.Power.Power), card.Power.Reason, v.p.Now().UTC()
	m.Vendor, m.Model, m.Serial = metal.Clip(card.Vendor), metal.Clip(card.Model), app.CleanSerial(metal.Clip(card.Serial))
	u, err := app.ParseUUID(card.ProductUUID)
	if err == nil && m.UUID == "" {
		m.UUID = u
	}
	for member, v := range map[string]string{"vendor": m.Vendor, "model": m.Model, "serial": m.Serial, "productUuid": string(u)} {
		if v != "" {
			m.From(member, m.BMC.Driver)
		}
	}
	if u != "" && !m.UUID.Same(u) {
		return app.Errorf(app.Conflict, "another-machine", "the BMC says its machine has UUID %s, %s was given", u, m.UUID).
			At("productUuid").Do("check the BMC's address")
	}
	if err := v.unknown(ctx, m); err != nil {
		return err
	}
	return v.propose(ctx, m, card.MACs)
}

// propose adds MACs that the BMC names and no other machine has.
func (v *Verbs) propose(ctx context.Context, m *app.Machine, macs []string) error {
	for _, s := range macs {
		mac, err := app.ParseMAC(s)
		if err != nil || has(m, mac) || len(m.NICs) >= metal.MaxNICs {
			continue
		}
		_, err = v.p.Machines.MachineByMAC(ctx, mac)
		if err == nil {
			continue
		}
		if app.CodeOf(err) != app.NotFound {
			return err
		}
		m.NICs = append(m.NICs, app.NIC{MAC: mac, Source: "bmc"})
	}
	return nil
}

func has(m *app.Machine, mac app.MAC) bool {
	for _, n := range m.NICs {
		if n.MAC == mac {
			return true
		}
	}
	return false
}

// Accept enrolls a discovered machine: what DHCP saw of it is added to the input, and the discovery is forgotten.
func (v *Verbs) Accept(ctx context.Context, mac app.MAC, in Input) (*app.Machine, error) {
	all, err := v.cfg.Network.ListDiscoveries(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.MAC != mac {
			continue
		}
		in.MACs = append(in.MACs, d.MAC)
		if in.UUID == "" {
			twin, err := v.refusedTwin(ctx, d.MAC, d.UUID)
			if err != nil {
				return nil, err
			}
			if !twin { // else its UUID is another's too, and identifies neither
				in.UUID = d.UUID
			}
		}
		if in.Firmware == "" {
			in.Firmware = firmware(d.Arch)
		}
		m, err := v.Enroll(ctx, in)
		if err != nil {
			return nil, err
		}
		return m, v.cfg.Network.DeleteDiscovery(ctx, mac)
	}
	return nil, app.Missing("discovery", string(mac))
}

// firmware is how a machine boots that netbooted as an architecture; "" when that does not tell. Only an x86 machine boots
// without UEFI, and it then says so.
func firmware(arch string) app.Firmware {
	switch arch {
	case "":
		return ""
	case "bios":
		return app.FirmwareBIOS
	}
	return app.FirmwareUEFI
}

// ConfirmMAC makes a proposed MAC one of the machine's own.
func (v *Verbs) ConfirmMAC(ctx context.Context, machineID string, mac app.MAC) (*app.Machine, error) {
	return v.p.Machines.UpdateMachine(ctx, machineID, func(m *app.Machine) error {
		for i := range m.NICs {
			if m.NICs[i].MAC == mac {
				m.NICs[i].Confirmed = true
				return nil
			}
		}
		m.NICs = append(m.NICs, app.NIC{MAC: mac, Confirmed: true, Source: "operator"})
		return nil
	})
}
