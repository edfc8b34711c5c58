package webtest

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// Call is one call that reached a fake.
type Call struct {
	What  string
	Actor string
	IDs   []string
	In    any
}

// Service records verbs and answers them with Err, or with a result per machine.
type Service struct {
	Store Store
	Err   error
	Card  *api.Card

	mu    sync.Mutex
	calls []Call
}

// Calls lists what was asked.
func (s *Service) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call{}, s.calls...)
}

func (s *Service) note(c Call) { s.mu.Lock(); defer s.mu.Unlock(); s.calls = append(s.calls, c) }

// Enroll stores the machine as it was described.
func (s *Service) Enroll(ctx context.Context, actor string, in api.EnrollInput) (*app.Machine, error) {
	s.note(Call{What: "enroll", Actor: actor, In: in})
	if s.Err != nil {
		return nil, s.Err
	}
	m := &app.Machine{ID: app.NewID("m"), Name: in.Name, State: app.StateEnrolled, Pool: in.Pool, Profile: in.Profile, Note: in.Note, Labels: in.Labels,
		UUID: in.ProductUUID, Firmware: in.Firmware, Power: app.PowerOff, StateSince: time.Now(), Created: time.Now()}
	for _, mac := range in.MACs {
		m.NICs = append(m.NICs, app.NIC{MAC: mac, Confirmed: true, Source: "operator"})
	}
	if in.BMC != nil {
		m.BMC = &app.BMC{Driver: in.BMC.Driver, Address: in.BMC.Address, CredentialRef: in.BMC.CredentialsRef, SPKI: in.BMC.SPKI}
	}
	return m, s.Store.CreateMachine(ctx, m)
}

// TestBMC answers with Card.
func (s *Service) TestBMC(_ context.Context, actor string, in api.BMCInput) (*api.Card, error) {
	s.note(Call{What: "test-bmc", Actor: actor, In: in})
	return s.Card, s.Err
}

// Do answers with one result per machine.
func (s *Service) Do(_ context.Context, actor string, v api.Verb, ids []string, o api.VerbOptions) ([]api.VerbResult, error) {
	s.note(Call{What: string(v), Actor: actor, IDs: ids, In: o})
	if s.Err != nil {
		return nil, s.Err
	}
	var out []api.VerbResult
	for _, id := range ids {
		out = append(out, api.VerbResult{MachineID: id, WorkflowID: "w-1"})
	}
	return out, nil
}

// AcceptDiscovery enrolls with the one MAC address.
func (s *Service) AcceptDiscovery(ctx context.Context, actor string, mac app.MAC, in api.AcceptInput) (*app.Machine, error) {
	return s.Enroll(ctx, actor, api.EnrollInput{Name: in.Name, BMC: in.BMC, Pool: in.Pool, Profile: in.Profile, MACs: []app.MAC{mac}})
}

// Query answers with the operation's name.
func (s *Service) Query(_ context.Context, actor string, m *app.Machine, operation string) (json.RawMessage, error) {
	s.note(Call{What: "query", Actor: actor, IDs: []string{m.ID}, In: operation})
	return json.RawMessage(`{"asked":"` + operation + `"}`), s.Err
}

// SetBMC answers with Card, and with the machine when it is no test.
func (s *Service) SetBMC(ctx context.Context, actor, machineID string, in api.BMCChange) (*api.BMCChanged, error) {
	s.note(Call{What: "set-bmc", Actor: actor, IDs: []string{machineID}, In: in})
	if s.Err != nil {
		return nil, s.Err
	}
	out := &api.BMCChanged{Card: s.Card}
	if in.Test {
		return out, nil
	}
	m, err := s.Store.Machine(ctx, machineID)
	out.Machine = m
	return out, err
}

// ConfirmMAC confirms.
func (s *Service) ConfirmMAC(ctx context.Context, actor, id string, mac app.MAC) (*app.Machine, error) {
	s.note(Call{What: "confirm-mac", Actor: actor, IDs: []string{id}, In: mac})
	return s.Store.Machine(ctx, id)
}

// PortQuestions lists what the store has.
func (s *Service) PortQuestions(ctx context.Context) ([]app.PortQuestion, error) {
	return s.Store.ListPortQuestions(ctx)
}

// AnswerPort marks the question.
func (s *Service) AnswerPort(ctx context.Context, actor, id string, accept bool) (*app.PortQuestion, error) {
	s.note(Call{What: "answer-port", Actor: actor, IDs: []string{id}, In: accept})
	if s.Err != nil {
		return nil, s.Err
	}
	return s.Store.AnswerPort(ctx, id, func(q *app.PortQuestion, _, _ *app.Machine) error {
		q.AnsweredBy, q.Answered, q.State = actor, time.Now(), app.QuestionRefused
		if accept {
			q.State = app.QuestionAccepted
		}
		return nil
	})
}

// ForgetPortQuestion forgets.
func (s *Service) ForgetPortQuestion(ctx context.Context, actor, id string) error {
	s.note(Call{What: "forget-port", Actor: actor, IDs: []string{id}})
	return s.Store.DeletePortQuestion(ctx, id)
}
