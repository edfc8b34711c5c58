package site

import (
	"context"
	"errors"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
)

// retire lets go of a machine but keeps its record.
func (s *service) retire(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
	m, err := s.db.Machine(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.letGo(ctx, actor, m, "retire", o.Force); err != nil {
		return nil, err
	}
	var off error
	if o.PowerOff && m.BMC != nil {
		off = s.cutPower(ctx, m)
	}
	err = s.change(ctx, actor, id, "machine.retired", "was retired", func(m *app.Machine) error {
		m.State, m.StateSince, m.StateReason, m.WorkflowID = app.StateRetired, s.now().UTC(), o.Reason, ""
		return nil
	})
	return nil, errors.Join(err, off)
}

func (s *service) cutPower(ctx context.Context, m *app.Machine) error {
	h, err := s.ports.Hardware(ctx, m, "retire:"+m.ID)
	if err != nil {
		return err
	}
	return h.SetPower(ctx, "off")
}

// delete removes a machine and everything that is kept of it, its credential included.
func (s *service) delete(ctx context.Context, actor, id string, o api.VerbOptions) (*workflow.Workflow, error) {
	m, err := s.db.Machine(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.letGo(ctx, actor, m, "delete", o.Force); err != nil {
		return nil, err
	}
	if err := s.db.DeleteMachine(ctx, m.ID); err != nil {
		return nil, err
	}
	s.say(actor, "machine.deleted", m, "%s was deleted", m.Name)
	return nil, s.forget(ctx, m)
}

// letGo ends what a machine is busy with. Without force, a machine that is busy, locked or deployed is refused.
func (s *service) letGo(ctx context.Context, actor string, m *app.Machine, verb string, force bool) error {
	if !force {
		if err := mayLeave(m, verb); err != nil {
			return err
		}
	}
	if m.WorkflowID != "" {
		err := s.flows.Abort(ctx, m.WorkflowID, actor, verb)
		if err != nil && app.CodeOf(err) != app.NotFound && app.CodeOf(err) != app.Conflict {
			return err
		}
	}
	return s.ports.Boots.Revoke(ctx, m.ID)
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
