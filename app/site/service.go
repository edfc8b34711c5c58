package site

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/bootiso"
	"github.com/better-compute/bcd/app/metal/commission"
	"github.com/better-compute/bcd/app/metal/deploy"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/app/metal/power"
	"github.com/better-compute/bcd/app/metal/release"
	"github.com/better-compute/bcd/app/metal/rescue"
	"github.com/better-compute/bcd/app/metal/rotate"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
)

// service is what the faces ask of machines, over the verbs.
type service struct {
	ports      *metal.Ports
	db         app.MachineStore
	flows      flows
	enroll     *enroll.Verbs
	commission *commission.Verbs
	deploy     *deploy.Verbs
	release    *release.Verbs
	rescue     *rescue.Verbs
	iso        *bootiso.Verbs
	power      *power.Verbs
	rotate     *rotate.Verbs
	serials    *serial.Consoles
	query      func(ctx context.Context, m *app.Machine, operation string) (json.RawMessage, error)
	probe      func(ctx context.Context, in api.BMCInput) (*api.Card, error)
	halt       func(m *app.Machine)                            // ends all traffic to a machine's BMC, running and waiting
	forget     func(ctx context.Context, m *app.Machine) error // sessions and credential of a machine that is gone
	record     func(app.Event)
	claim      func(m *app.Machine)   // what was seen of its ports before is its own
	untold     func(machineID string) // drops its timeline
	now        func() time.Time
}

var _ api.Service = (*service)(nil)

// flows is the engine.
type flows interface {
	workflow.API
	Drop(ctx context.Context, id, actor, reason string) error
}

// stagger is the pause between the starts of a batch, so that a rack does not draw its inrush current at once.
const stagger = 500 * time.Millisecond

func (s *service) say(actor, kind string, m *app.Machine, format string, args ...any) {
	s.record(app.Event{Time: s.now().UTC(), Kind: kind, Level: "info", MachineID: m.ID, Actor: actor, Message: fmt.Sprintf(format, args...)})
}

func input(in api.EnrollInput) enroll.Input {
	out := enroll.Input{Name: in.Name, Pool: in.Pool, Profile: in.Profile, Drivers: in.Drivers, MACs: in.MACs, UUID: in.ProductUUID, Firmware: in.Firmware, Labels: in.Labels, Note: in.Note, Force: in.Force}
	if in.BMC != nil {
		out.BMC = &app.BMC{Driver: in.BMC.Driver, Address: in.BMC.Address, CredentialRef: in.BMC.CredentialsRef, SPKI: in.BMC.SPKI, Options: in.BMC.Options}
		if c := in.BMC.Credentials; c != nil {
			out.Credentials = &enroll.Credentials{Username: c.Username, Password: c.Password}
		}
	}
	return out
}

// Enroll takes a machine on.
func (s *service) Enroll(ctx context.Context, actor string, in api.EnrollInput) (*app.Machine, error) {
	m, err := s.enroll.Enroll(ctx, input(in))
	if err == nil {
		s.claim(m)
		s.say(actor, "machine.enrolled", m, "%s was enrolled", m.Name)
	}
	return m, err
}

// TestBMC asks a BMC who it is.
func (s *service) TestBMC(ctx context.Context, _ string, in api.BMCInput) (*api.Card, error) {
	return s.probe(ctx, in)
}

// AcceptDiscovery enrolls a machine that netbooted.
func (s *service) AcceptDiscovery(ctx context.Context, actor string, mac app.MAC, in api.AcceptInput) (*app.Machine, error) {
	m, err := s.enroll.Accept(ctx, mac, input(api.EnrollInput{Name: in.Name, BMC: in.BMC, Pool: in.Pool, Profile: in.Profile}))
	if err == nil {
		s.claim(m)
		s.say(actor, "machine.accepted", m, "%s was accepted with MAC %s", m.Name, mac)
	}
	return m, err
}

// Query asks a machine's BMC.
func (s *service) Query(ctx context.Context, actor string, m *app.Machine, operation string) (json.RawMessage, error) {
	out, err := s.query(ctx, m, operation)
	if err == nil {
		s.say(actor, "bmc.query", m, "%s was asked %s", m.Name, operation)
	}
	return out, err
}

// ConfirmMAC makes a proposed MAC the machine's own.
func (s *service) ConfirmMAC(ctx context.Context, actor, machineID string, mac app.MAC) (*app.Machine, error) {
	m, err := s.enroll.ConfirmMAC(ctx, machineID, mac)
	if err == nil {
		s.claim(m)
		s.say(actor, "machine.mac", m, "%s was confirmed as a port of %s", mac, m.Name)
	}
	return m, err
}

// PortQuestions lists what only a person can say of ports.
func (s *service) PortQuestions(ctx context.Context) ([]app.PortQuestion, error) {
	return s.enroll.Questions(ctx)
}

// AnswerPort settles a question about a port. Both machines' trails tell of it, once.
func (s *service) AnswerPort(ctx context.Context, actor, id string, accept bool) (*app.PortQuestion, error) {
	q, first, err := s.enroll.Answer(ctx, actor, id, accept)
	if err != nil || !first {
		return q, err
	}
	what, kind := fmt.Sprintf("port %s is not one of %s", q.MAC, q.Machine), "machine.mac-refused"
	switch {
	case accept && q.OwnerID != "":
		what, kind = fmt.Sprintf("port %s was moved from %s to %s", q.MAC, q.Owner, q.Machine), "machine.mac"
	case accept:
		what, kind = fmt.Sprintf("port %s is one of %s", q.MAC, q.Machine), "machine.mac"
	case q.OwnerID != "":
		what = fmt.Sprintf("port %s was not moved from %s to %s", q.MAC, q.Owner, q.Machine)
	}
	for _, id := range []string{q.OwnerID, q.MachineID} {
		if id != "" {
			s.say(actor, kind, &app.Machine{ID: id}, "%s", what)
		}
	}
	if accept {
		if m, err := s.db.Machine(ctx, q.MachineID); err == nil {
			s.claim(m)
		}
	}
	return q, nil
}

// ForgetPortQuestion takes an answer back.
func (s *service) ForgetPortQuestion(ctx context.Context, actor, id string) error {
	q, err := s.enroll.Question(ctx, id)
	if err != nil {
		return err
	}
	if err := s.enroll.ForgetQuestion(ctx, id); err != nil {
		return err
	}
	s.say(actor, "machine.mac-forgotten", &app.Machine{ID: q.MachineID}, "the question about port %s, %s, was forgotten", q.MAC, q.State)
	return nil
}

// Do runs a verb on each machine. The starts of a batch that turns power on are spread out.
func (s *service) Do(ctx context.Context, actor string, v api.Verb, ids []string, o api.VerbOptions) ([]api.VerbResult, error) {
	f, ok := s.verbs()[v]
	if !ok {
		return nil, app.Errorf(app.Unsupported, "no-such-verb", "there is no verb %q", v)
	}
	out := make([]api.VerbResult, 0, len(ids))
	for i, id := range ids {
		if i > 0 && turnsOn(v, o) {
			select {
			case <-time.After(stagger):
			case <-ctx.Done():
				return out, ctx.Err()
			}
		}
		out = append(out, s.one(ctx, actor, id, o, f))
	}
	return out, nil
}

func turnsOn(v api.Verb, o api.VerbOptions) bool {
	switch v {
	case api.Commission, api.Deploy, api.Release, api.Rescue, api.BootISO:
		return true
	case api.Power:
		return o.Power == "on" || o.Power == "cycle" || o.Power == "reset"
	}
	return false
}

func (s *service) one(ctx context.Context, actor, id string, o api.VerbOptions, f verb) api.VerbResult {
	w, err := f(ctx, actor, id, o)
	r := api.VerbResult{MachineID: id}
	if w != nil {
		r.WorkflowID = w.ID
	}
	if err != nil {
		if r.Error, _ = app.AsError(err); r.Error == nil {
			r.Error = app.Errorf(app.Internal, "internal", "something failed inside the appliance: %w", err).Do("look at its log")
		}
	}
	return r
}

type verb func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error)

func (s *service) verbs() map[api.Verb]verb {
	return map[api.Verb]verb{
		api.Commission: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			return s.commission.Start(ctx, actor, id, o.Tests)
		},
		api.Deploy: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			if o.Deploy == nil {
				return nil, app.Invalid("image", "is missing")
			}
			return s.deploy.Start(ctx, actor, id, *o.Deploy)
		},
		api.Release: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			return s.release.Start(ctx, actor, id, release.Options{Disks: o.Disks})
		},
		api.Rescue: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			return s.rescue.Start(ctx, actor, id, rescue.Options{AuthorizedKeys: o.AuthorizedKeys})
		},
		api.ExitRescue: func(ctx context.Context, actor, id string, _ api.VerbOptions) (*workflow.Workflow, error) {
			return s.rescue.Leave(ctx, actor, id)
		},
		api.BootISO: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			if o.ISO == nil {
				return nil, app.Invalid("image", "is missing")
			}
			return s.iso.Start(ctx, actor, id, *o.ISO)
		},
		api.ExitISO: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			return s.iso.Leave(ctx, actor, id, bootiso.ExitOptions{Installed: o.Installed})
		},
		api.Power: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			return s.power.Start(ctx, actor, id, o.Power)
		},
		api.RotateCredential: func(ctx context.Context, actor, id string, _ api.VerbOptions) (*workflow.Workflow, error) {
			return s.rotate.Start(ctx, actor, id)
		},
		api.Abort:    s.abort,
		api.Retry:    s.retry,
		api.Adopt:    s.adopt,
		api.Override: s.override,
		api.Lock: func(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
			return nil, s.change(ctx, actor, id, "machine.locked", "was locked: "+o.Reason, func(m *app.Machine) error {
				m.Locked, m.LockReason = true, o.Reason
				return nil
			})
		},
		api.Unlock: func(ctx context.Context, actor, id string, _ api.VerbOptions) (*workflow.Workflow, error) {
			return nil, s.change(ctx, actor, id, "machine.unlocked", "was unlocked", func(m *app.Machine) error {
				m.Locked, m.LockReason = false, ""
				return nil
			})
		},
		api.Retire: s.retire,
		api.Delete: s.delete,
	}
}

func (s *service) change(ctx context.Context, actor, id, kind, what string, f func(*app.Machine) error) error {
	m, err := s.db.UpdateMachine(ctx, id, f)
	if err != nil {
		return err
	}
	s.say(actor, kind, m, "%s %s", m.Name, what)
	return nil
}

// active finds the workflow a machine is busy with.
func (s *service) active(ctx context.Context, id string) (string, error) {
	m, err := s.db.Machine(ctx, id)
	if err != nil {
		return "", err
	}
	if m.WorkflowID == "" {
		return "", app.Errorf(app.Conflict, "nothing-to-abort", "%s has no active workflow", m.Name)
	}
	return m.WorkflowID, nil
}

func (s *service) abort(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
	w, err := s.active(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.flows.Abort(ctx, w, actor, o.Reason); err != nil {
		return nil, err
	}
	return s.flows.Get(ctx, w)
}

// retry goes on with an interrupted workflow, or with the last one that failed.
func (s *service) retry(ctx context.Context, actor, id string, _ api.VerbOptions) (*workflow.Workflow, error) {
	w, err := s.active(ctx, id)
	if err != nil {
		last, lerr := s.flows.List(ctx, workflow.Filter{MachineID: id, Limit: 1})
		if lerr != nil {
			return nil, lerr
		}
		if len(last) == 0 || last[0].State != workflow.Failed {
			return nil, app.Errorf(app.Conflict, "nothing-to-retry", "no workflow of this machine failed last").Do("start the verb anew")
		}
		w = last[0].ID
	}
	if err := s.flows.Retry(ctx, w, actor); err != nil {
		return nil, err
	}
	return s.flows.Get(ctx, w)
}

func (s *service) adopt(ctx context.Context, actor, id string, _ api.VerbOptions) (*workflow.Workflow, error) {
	return nil, s.change(ctx, actor, id, "machine.adopted", "was adopted, and what is on its disks left alone", func(m *app.Machine) error {
		if err := metal.From(m, "adopt", false, app.StateEnrolled); err != nil {
			return err
		}
		m.State, m.StateSince, m.StateReason = app.StateDeployed, s.now().UTC(), "adopted: bcd neither put its system there nor looked at it"
		return nil
	})
}

// override puts a failed machine where the operator vouches it stands.
func (s *service) override(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
	if o.Reason == "" {
		return nil, app.Invalid("reason", "an override needs a reason, which is kept")
	}
	if o.State != app.StateReady && o.State != app.StateDeployed {
		return nil, app.Invalid("state", "a machine can be overridden to ready or deployed")
	}
	return nil, s.change(ctx, actor, id, "machine.override", fmt.Sprintf("was declared %s: %s", o.State, o.Reason), func(m *app.Machine) error {
		if err := metal.From(m, "override", false, app.StateFailed); err != nil {
			return err
		}
		m.State, m.StateSince, m.StateReason, m.FailedVerb, m.ISO = o.State, s.now().UTC(), "declared by "+actor+": "+o.Reason, "", nil
		return nil
	})
}
