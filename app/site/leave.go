package site

import (
	"context"
	"errors"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
)

// retire lets go of a machine but keeps its record. With force it does so whatever the machine is busy with.
func (s *service) retire(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
	m, err := s.leaving(ctx, id, "retire", o.Force)
	if err != nil {
		return nil, err
	}
	if o.PowerOff && m.BMC != nil {
		if err := s.ports.Supports(ctx, m, "power.setPower"); err != nil {
			return nil, err
		}
	}
	if err := s.drop(ctx, actor, m, "retire"); err != nil {
		return nil, err
	}
	if err := s.ports.Boots.Revoke(ctx, m.ID); err != nil {
		return nil, err
	}
	var off error
	if o.PowerOff && m.BMC != nil {
		off = s.cutPower(ctx, m)
	}
	err = s.change(ctx, actor, m.ID, "machine.retired", "was retired", func(m *app.Machine) error {
		if m.WorkflowID != "" {
			return metal.From(m, "retire", false)
		}
		m.State, m.StateSince, m.StateReason, m.FailedVerb, m.Before = app.StateRetired, s.now().UTC(), o.Reason, "", ""
		return nil
	})
	return nil, errors.Join(err, off)
}

func (s *service) cutPower(ctx context.Context, m *app.Machine) error {
	h, err := s.ports.Hardware(ctx, m, drivers.Options{Key: "retire:" + m.ID})
	if err != nil {
		return err
	}
	return h.SetPower(ctx, "off")
}

// delete removes a machine and everything that is kept of it, its credential included. With force it does so in every
// state, and its BMC sees no more traffic.
func (s *service) delete(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
	m, err := s.leaving(ctx, id, "delete", o.Force)
	if err != nil {
		return nil, err
	}
	if err := s.ports.Boots.Revoke(ctx, m.ID); err != nil {
		return nil, err
	}
	if err := s.db.DeleteMachine(ctx, m.ID); err != nil { // before the workflow ends, so that no other begins
		return nil, err
	}
	s.say(actor, "machine.deleted", m, "%s was deleted", m.Name)
	defer s.untold(m.ID) // after the last that its workflow says
	return nil, errors.Join(s.drop(ctx, actor, m, "delete"), s.forget(ctx, m))
}

// leaving finds a machine that is to go. Without force, one that is busy, locked or deployed is refused.
func (s *service) leaving(ctx context.Context, id, verb string, force bool) (*app.Machine, error) {
	m, err := s.db.Machine(ctx, id)
	if err == nil && !force {
		err = mayLeave(m, verb)
	}
	return m, err
}

// drop ends what a machine is busy with, at once: its BMC is left as it is, since a clean-up would talk to it.
func (s *service) drop(ctx context.Context, actor string, m *app.Machine, verb string) error {
	s.halt(m)
	s.serials.End(ctx, m.ID, app.Errorf(app.Conflict, "machine-leaves", "%s is being %sd", m.Name, verb))
	if m.WorkflowID == "" {
		return nil
	}
	err := s.flows.Drop(ctx, m.WorkflowID, actor, verb)
	s.halt(m) // what a step began in between
	return err
}

func mayLeave(m *app.Machine, verb string) error {
	if err := metal.From(m, verb, true, app.StateNew, app.StateEnrolled, app.StateReady, app.StateFailed, app.StateRetired, app.StateDeployed); err != nil {
		return err
	}
	if m.State == app.StateDeployed && verb == "delete" {
		return app.Errorf(app.Conflict, "machine-deployed", "%s is deployed", m.Name).
			Do("release it first, or force the deletion: its disks are then not wiped")
	}
	return nil
}
