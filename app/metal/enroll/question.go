package enroll

import (
	"context"
	"errors"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
)

// Questions lists what only a person can say of ports that were seen, the open ones first.
func (v *Verbs) Questions(ctx context.Context) ([]app.PortQuestion, error) {
	all, err := v.cfg.Questions.ListPortQuestions(ctx)
	slices.SortStableFunc(all, func(a, b app.PortQuestion) int { return open(b) - open(a) })
	return all, err
}

// Question finds one question, without the names of its machines.
func (v *Verbs) Question(ctx context.Context, id string) (*app.PortQuestion, error) {
	return v.cfg.Questions.PortQuestion(ctx, id)
}

func open(q app.PortQuestion) int {
	if q.State == app.QuestionOpen {
		return 1
	}
	return 0
}

// Answer settles a question: the port becomes the machine's that it was seen in and the other loses it, or it stays as it is
// and nobody is asked again while the facts are these. The same answer twice is one; first reports whether it was this call
// that gave it. Another answer than was given is refused: two people see two things.
func (v *Verbs) Answer(ctx context.Context, actor, id string, accept bool) (q *app.PortQuestion, first bool, err error) {
	state := app.QuestionRefused
	if accept {
		state = app.QuestionAccepted
	}
	given, err := v.cfg.Questions.PortQuestion(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if given.State != app.QuestionOpen {
		return given, false, answered(given, state)
	}
	q, err = v.cfg.Questions.AnswerPort(ctx, id, func(q *app.PortQuestion, owner, m *app.Machine) error {
		if q.State != app.QuestionOpen { // somebody was quicker
			*given = *q
			return errAnswered
		}
		q.State, q.Answered, q.AnsweredBy = state, v.p.Now().UTC(), actor
		if accept {
			return take(q, owner, m)
		}
		m.NICs = slices.DeleteFunc(m.NICs, func(n app.NIC) bool { return n.MAC == q.MAC && !n.Confirmed })
		return nil
	})
	if errors.Is(err, errAnswered) {
		return given, false, answered(given, state)
	}
	return q, err == nil, err
}

// errAnswered says that a question is no longer open.
var errAnswered = errors.New("the question is answered already")

// answered refuses another answer than was given.
func answered(q *app.PortQuestion, state string) error {
	if q.State == state {
		return nil
	}
	return app.Errorf(app.Conflict, "question-answered", "%s has %s this already", q.AnsweredBy, q.State).
		Do("if that was wrong, forget the answer: the question is asked again when the port is seen again")
}

// take gives the port to the machine that it was seen in.
func take(q *app.PortQuestion, owner, m *app.Machine) error {
	if owner != nil {
		i := slices.IndexFunc(owner.NICs, func(n app.NIC) bool { return n.MAC == q.MAC })
		if i < 0 {
			return app.Errorf(app.Conflict, "question-stale", "port %s is no longer one of %s", q.MAC, owner.Name).Do("let %s netboot again: what is still unclear is asked then", m.Name)
		}
		if owner.WorkflowID != "" {
			return app.Errorf(app.Conflict, "machine-busy", "%s, whose port it is, is busy: %s", owner.Name, owner.State).Do("wait for its workflow to end, or abort it, and answer again")
		}
		owner.NICs = slices.Delete(owner.NICs, i, i+1)
	}
	for i := range m.NICs {
		if m.NICs[i].MAC == q.MAC {
			m.NICs[i].Confirmed = true
			return nil
		}
	}
	if len(m.NICs) >= metal.MaxNICs {
		return app.Errorf(app.Conflict, "too-many-ports", "%s has %d ports already, as many as are kept", m.Name, len(m.NICs)).Do("commission it, so that the ports it has lost are seen")
	}
	m.NICs = append(m.NICs, app.NIC{MAC: q.MAC, Confirmed: true, Source: "operator"})
	return nil
}

// ForgetQuestion takes an answer back, or a question: it is asked again when the port is seen again.
func (v *Verbs) ForgetQuestion(ctx context.Context, id string) error {
	return v.cfg.Questions.DeletePortQuestion(ctx, id)
}

// refusedTwin reports whether a person said that the port is not one of the machine with its UUID: then two boards share it.
func (v *Verbs) refusedTwin(ctx context.Context, mac app.MAC, u app.UUID) (bool, error) {
	same, err := v.p.Machines.MachinesByUUID(ctx, u)
	if err != nil || len(same) != 1 {
		return false, err
	}
	q, err := v.cfg.Questions.PortQuestion(ctx, app.NewPortQuestion(app.PortNew, mac, "", same[0].ID, v.p.Now()).ID)
	if app.CodeOf(err) == app.NotFound {
		return false, nil
	}
	return err == nil && q.State == app.QuestionRefused, err
}
