package enroll

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/plugins/driver"
)

// BMCChange says how a machine's BMC is reached from now on. What is empty stays as it is; a machine that was enrolled without
// a BMC is given one by its driver, address and login.
type BMCChange struct {
	Driver        string // of another driver, the options of the one before do not stay
	Address       string
	Pin           string       // SHA-256 of the TLS key that is accepted, hex
	Credentials   *Credentials // typed
	CredentialRef string       // or stored
	Options       json.RawMessage
	Another       bool // the BMC may be of another machine than the one that was enrolled
	Test          bool // ask the BMC, and change nothing
}

// to is the BMC as it is reached then; now is nil for a machine that has none yet.
func (c BMCChange) to(was *app.BMC) (now app.BMC, err error) {
	if was != nil {
		now = *was
	} else if err := c.whole(); err != nil {
		return now, err
	}
	if c.Driver != "" && c.Driver != now.Driver {
		now.Driver, now.Options = c.Driver, nil
	}
	for _, f := range []struct{ to, from *string }{{&now.Address, &c.Address}, {&now.SPKI, &c.Pin}, {&now.CredentialRef, &c.CredentialRef}} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	if c.Options != nil {
		now.Options = c.Options
	}
	return now, nil
}

// vouched refuses to show the login that is kept to whoever answers at another address with another key, or with none: the
// change would be a way to learn the password.
func (c BMCChange) vouched(was *app.BMC, now app.BMC) error {
	if was == nil || c.Credentials != nil || c.CredentialRef != "" || now.Address == was.Address || was.SPKI != "" && now.SPKI == was.SPKI {
		return nil
	}
	return app.Errorf(app.InvalidInput, "credentials-needed", "the login that is kept is for the BMC at %s: nothing shows that the one at %s is the same", was.Address, now.Address).
		At("credentials").Do("type the login again, or name a stored one")
}

// whole refuses what does not say everything that a first BMC needs.
func (c BMCChange) whole() error {
	refuse := func(field, what string) error {
		return app.Errorf(app.InvalidInput, "no-bmc", "the machine has no BMC yet, and %s is missing", what).At(field).Do("give driver, address and login of its BMC")
	}
	switch {
	case c.Driver == "":
		return refuse("driver", "the driver")
	case c.Address == "":
		return refuse("address", "the address")
	case c.Credentials == nil && c.CredentialRef == "":
		return refuse("credentials", "the login")
	}
	return nil
}

// ChangeBMC asks a BMC who it is, by the login and the key it is to be reached with, and then keeps those. A key other than the
// pinned one is accepted only when the change names it, and a BMC that says it is another machine's only when the change says
// so. The card is what the BMC said; m is the machine as it is afterwards.
func (v *Verbs) ChangeBMC(ctx context.Context, machineID string, in BMCChange) (m *app.Machine, card driver.Card, err error) {
	m, err = v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, card, err
	}
	if !in.Test {
		if err := v.changeable(ctx, m, in); err != nil {
			return nil, card, err
		}
	}
	to, err := in.to(m.BMC)
	if err == nil {
		err = in.vouched(m.BMC, to)
	}
	if err != nil {
		return nil, card, err
	}
	asking, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if card, err = v.cfg.Try(asking, to, in.Credentials); err != nil {
		return nil, card, err
	}
	if to.SPKI == "" {
		to.SPKI = card.SPKI
	}
	if err := sameMachine(m, card); err != nil && !in.Another {
		return nil, card, err
	}
	if in.Test {
		return m, card, nil
	}
	next, err := v.changed(ctx, m, to, card)
	if err != nil {
		return nil, card, err
	}
	m, err = v.keep(ctx, m, next, in.Credentials)
	return m, card, err
}

// changeable refuses a change of a machine that is busy, and a typed login while a rotation is unsettled: the login would take
// the place of the old password, which may be the one that the BMC takes.
func (v *Verbs) changeable(ctx context.Context, m *app.Machine, in BMCChange) error {
	if err := free(m); err != nil || in.Credentials == nil {
		return err
	}
	unsettled, err := v.cfg.Unsettled(ctx, m.ID)
	if err != nil || !unsettled {
		return err
	}
	return app.Errorf(app.Conflict, "credential-unsettled", "a rotation of the password of %s is not settled: the old and the new one are both kept, and a typed login would replace the old one", m.Name).
		At("credentials").Do("rotate its credential again once the BMC answers; if it takes neither password, store its login as a secret, name that here, and rotate then")
}

func free(m *app.Machine) error {
	if m.WorkflowID == "" {
		return nil
	}
	return app.Errorf(app.Conflict, "machine-busy", "%s is busy: its BMC cannot be changed now", m.Name).Do("wait for its workflow to end, or abort it")
}

// identity is what a BMC says which machine it is of. A malformed UUID identifies nothing.
func identity(card driver.Card) (u app.UUID, serial string) {
	u, _ = app.ParseUUID(card.ProductUUID)
	return u, app.CleanSerial(metal.Clip(card.Serial))
}

// sameMachine refuses a BMC that says it is of another machine. One that says nothing is believed.
func sameMachine(m *app.Machine, card driver.Card) error {
	u, serial := identity(card)
	switch {
	case u != "" && m.UUID != "" && !m.UUID.Same(u):
		return anotherMachine("UUID", string(u), m.Name, string(m.UUID))
	case serial != "" && m.Serial != "" && !app.SameSerial(serial, m.Serial):
		return anotherMachine("serial number", serial, m.Name, m.Serial)
	}
	return nil
}

func anotherMachine(what, says, name, has string) error {
	return app.Errorf(app.Conflict, "another-machine", "the BMC says its machine has the %s %s, %s has %s", what, says, name, has).
		At("address").Do("check the BMC's address; if the machine's board was replaced, accept it as another machine")
}

// changed is the machine with the BMC, what it says, and bindings that go to it.
func (v *Verbs) changed(ctx context.Context, m *app.Machine, to app.BMC, card driver.Card) (*app.Machine, error) {
	next := *m
	next.BMC = &to
	raw, err := json.Marshal(card)
	if err != nil {
		return nil, fmt.Errorf("encoding the capability card: %w", err)
	}
	next.Card = raw
	next.Power, next.PowerReason, next.PowerSeen = app.Power(card.Power.Power), card.Power.Reason, v.p.Now().UTC()
	if m.BMC == nil {
		if err := v.introduce(ctx, &next, card); err != nil {
			return nil, err
		}
	}
	u, serial := identity(card)
	if sameMachine(m, card) != nil {
		next.UUID, next.Serial = cmp.Or(u, m.UUID), cmp.Or(serial, m.Serial)
	}
	if next.UUID == m.UUID {
		return &next, nil
	}
	owners, err := v.p.Machines.MachinesByUUID(ctx, next.UUID)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		if o.ID != m.ID {
			return nil, app.Errorf(app.Conflict, "uuid-taken", "product UUID %s belongs to machine %s", next.UUID, o.Name).At("address").Do("check the BMC's address")
		}
	}
	return &next, nil
}

// keep seals a typed login, binds the machine anew and stores it. A login is sealed under a name of its own, and the one that
// was there goes once nothing names it: whatever fails, and whoever else changes the same, the machine has the login that it
// was last seen to answer to.
func (v *Verbs) keep(ctx context.Context, was, next *app.Machine, c *Credentials) (m *app.Machine, err error) {
	own := drivers.Overrides(was)
	if c != nil {
		if next.BMC.CredentialRef, err = v.cfg.Seal(ctx, Secret(was.ID)+"."+app.NewID("login"), *c); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, v.cfg.Forget(context.WithoutCancel(ctx), next.BMC.CredentialRef))
			}
		}()
	}
	if err := v.cfg.Bind(ctx, next, own, true); err != nil { // the BMC has answered: what other drivers' checks say is told, not obeyed
		return nil, err
	}
	m, err = v.p.Machines.UpdateMachine(ctx, was.ID, func(m *app.Machine) error {
		if err := free(m); err != nil {
			return err
		}
		if m.Version != was.Version {
			return app.Errorf(app.Conflict, "machine-changed", "%s was changed meanwhile", m.Name).Do("try again")
		}
		for member, value := range said(next) {
			if value != said(m)[member] {
				m.From(member, next.BMC.Driver)
			}
		}
		m.Vendor, m.Model, m.NICs = next.Vendor, next.Model, next.NICs
		m.BMC, m.Card, m.Drivers, m.Labels, m.UUID, m.Serial = next.BMC, next.Card, next.Drivers, next.Labels, next.UUID, next.Serial
		m.Power, m.PowerReason, m.PowerSeen = next.Power, next.PowerReason, next.PowerSeen
		return nil
	})
	if err != nil {
		return nil, err
	}
	if was.BMC == nil {
		return m, nil
	}
	v.cfg.Left(was)
	if old := was.BMC.CredentialRef; c != nil && v.ours(was.ID, old) {
		_ = v.cfg.Forget(context.WithoutCancel(ctx), old) // one that stays goes with the machine
	}
	return m, nil
}

// Secret is the name of the login that is sealed for a machine alone. Those that take its place have a name that begins with
// it and a dot.
func Secret(machineID string) string { return "bmc-" + machineID }

// ours reports a login that was sealed for the machine alone, not by an operator.
func (v *Verbs) ours(machineID, ref string) bool {
	own := v.cfg.Ref(Secret(machineID))
	return ref == own || strings.HasPrefix(ref, own+".")
}

// introduce takes over what the first BMC of a machine says of it and was not known.
func (v *Verbs) introduce(ctx context.Context, m *app.Machine, card driver.Card) error {
	u, serial := identity(card)
	m.UUID, m.Serial = cmp.Or(m.UUID, u), cmp.Or(m.Serial, serial)
	m.Vendor, m.Model = cmp.Or(m.Vendor, metal.Clip(card.Vendor)), cmp.Or(m.Model, metal.Clip(card.Model))
	m.NICs = slices.Clone(m.NICs)
	return v.propose(ctx, m, card.MACs)
}

// said is what a BMC can say of a machine, by member.
func said(m *app.Machine) map[string]string {
	return map[string]string{"productUuid": string(m.UUID), "serial": m.Serial, "vendor": m.Vendor, "model": m.Model}
}
