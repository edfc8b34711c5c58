package site

import (
	"context"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/web/api"
)

// SetBMC changes how a machine's BMC is reached, after it was seen to answer so.
func (s *service) SetBMC(ctx context.Context, actor, machineID string, in api.BMCChange) (*api.BMCChanged, error) {
	change := enroll.BMCChange{Driver: in.Driver, Address: in.Address, Pin: in.AcceptPin, CredentialRef: in.CredentialsRef, Options: in.Options, Another: in.Another, Test: in.Test}
	if c := in.Credentials; c != nil {
		change.Credentials = &enroll.Credentials{Username: c.Username, Password: c.Password}
	}
	was, err := s.db.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	before := app.BMC{} // of a machine that has none
	if was.BMC != nil {
		before = *was.BMC
	}
	m, card, err := s.enroll.ChangeBMC(ctx, was.ID, change)
	if e, ok := app.AsError(err); ok && in.Test {
		out := &api.BMCChanged{Card: &api.Card{Error: e}}
		if e.Reason == "another-machine" {
			if out.Card, err = describe(card, before.SPKI); err == nil {
				out.Card.OK, out.Card.Error = false, e
			}
			return out, err
		}
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	said, err := describe(card, before.SPKI)
	if err != nil {
		return nil, err
	}
	out := &api.BMCChanged{Card: said}
	if !in.Test {
		s.serials.End(ctx, m.ID, app.Errorf(app.Conflict, "bmc-changed", "the BMC of %s is reached otherwise from now on", m.Name).Do("open the console again: bcd machine console %s", m.Name))
		out.Machine = m
		if was.BMC == nil {
			s.say(actor, "machine.bmc", m, "%s was given a BMC: %s at %s", m.Name, m.BMC.Driver, m.BMC.Address)
			return out, nil
		}
		s.say(actor, "machine.bmc", m, "the BMC of %s is reached otherwise: %s", m.Name, strings.Join(differences(was.BMC, m.BMC, in.Credentials != nil), "; "))
	}
	return out, nil
}

// differences tells, without a credential, what is another.
func differences(was, now *app.BMC, login bool) (out []string) {
	note := func(what, a, b string) {
		if a != b {
			out = append(out, what+" "+b+" instead of "+a)
		}
	}
	note("driver", was.Driver, now.Driver)
	note("address", was.Address, now.Address)
	note("pinned key", was.SPKI, now.SPKI)
	note("driver options", string(was.Options), string(now.Options))
	if login {
		out = append(out, "another login was typed")
	} else {
		note("login from", was.CredentialRef, now.CredentialRef)
	}
	if len(out) == 0 {
		out = []string{"nothing of it is another"}
	}
	return out
}
