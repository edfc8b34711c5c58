// Package rotate gives a machine's BMC a new password.
//
// Old and new are both kept until it is settled which of them the BMC takes: the new one is sealed under a name of its own
// before it is sent, and takes the old one's place only after a login with it was seen. A crash at any instant leaves both,
// and the next process finds out.
package rotate

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/app/workflow"
)

// Verb is the name of the workflow.
const Verb = "rotate-credential"

const (
	kindPrepare = "rotate.prepare"
	kindChange  = "rotate.change"
	kindStore   = "rotate.store"
)

// operation is what the machine's driver must serve.
const operation = "management.rotateCredential"

// Config is how credentials are kept and tried. Every field is required.
type Config struct {
	// Open opens a reference for a step of a workflow on a machine, which the audit of the fetch names.
	Open   func(ctx context.Context, c workflow.Command, ref string) (enroll.Credentials, error)
	Seal   func(ctx context.Context, name string, c enroll.Credentials) (ref string, err error)
	Forget func(ctx context.Context, ref string) error
	// Ref is the reference to a sealed credential by its name.
	Ref func(name string) string
	// Login logs in at a machine's BMC and out again.
	Login func(ctx context.Context, m *app.Machine, c enroll.Credentials) error
}

// Verbs rotates credentials.
type Verbs struct {
	p   *metal.Ports
	cfg Config
}

// New registers the verb.
func New(p *metal.Ports, cfg Config) *Verbs {
	v := &Verbs{p, cfg}
	p.Flows.Register(workflow.Kind{Name: kindPrepare, Budget: time.Minute, Run: v.prepare})
	p.Flows.Register(workflow.Kind{Name: kindChange, Budget: metal.PowerChange, Run: v.change, Check: v.check})
	p.Flows.Register(workflow.Kind{Name: kindStore, Budget: metal.PowerChange, Run: v.store})
	p.Flows.RegisterVerb(workflow.Verb{Name: Verb, Version: 1,
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			if m.WorkflowID != "" {
				return metal.From(m, Verb, false)
			}
			m.WorkflowID = w.ID
			return nil
		},
		End: func(m *app.Machine, _ *workflow.Workflow) error {
			m.WorkflowID = ""
			return nil
		},
		Cleanup: v.settle,
	})
	return v
}

// Start starts a rotation. Only a credential in this appliance's own store can be rotated.
func (v *Verbs) Start(ctx context.Context, actor, machineID string) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if m.WorkflowID != "" {
		return nil, metal.From(m, Verb, false)
	}
	if m.BMC == nil || !strings.HasPrefix(m.BMC.CredentialRef, "secret://") {
		return nil, app.Errorf(app.Unsupported, "rotation-unsupported", "only a credential stored here can be rotated").Do("rotate it where it is kept")
	}
	if err := v.p.Supports(ctx, m, operation); err != nil {
		return nil, err
	}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: []workflow.Step{
		{ID: "prepare", Title: "Keep a new password beside the old one", Kind: kindPrepare, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true},
		{ID: "change", Title: "Change the password on the BMC", Kind: kindChange, On: workflow.OnSite, Lane: workflow.LaneBMC, Destructive: true},
		{ID: "store", Title: "Log in with the new password and store it", Kind: kindStore, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true},
	}})
}

// Pending is the name under which a machine's new password is kept until it is settled.
func Pending(machineID string) string { return stored(machineID) + pendingSuffix }

// Unsettled gives the machine that a secret's name says is unsettled.
func Unsettled(name string) (machineID string, ok bool) {
	name, ok = strings.CutSuffix(name, pendingSuffix)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(name, storedPrefix)
}

const (
	storedPrefix  = "bmc-"
	pendingSuffix = ".pending"
)

// stored is the name of a machine's own credential.
func stored(machineID string) string { return storedPrefix + machineID }

// pair is the login the machine is reached with, and the new one; fresh is false when there is none.
func (v *Verbs) pair(ctx context.Context, c workflow.Command, m *app.Machine) (old, next enroll.Credentials, fresh bool, err error) {
	if m.BMC == nil {
		return old, next, false, app.Errorf(app.Conflict, "no-bmc", "%s has no BMC any more", m.Name)
	}
	if old, err = v.cfg.Open(ctx, c, m.BMC.CredentialRef); err != nil {
		return old, next, false, err
	}
	next, err = v.cfg.Open(ctx, c, v.cfg.Ref(Pending(m.ID)))
	if app.CodeOf(err) == app.NotFound {
		return old, next, false, nil
	}
	return old, next, err == nil, err
}

func (v *Verbs) prepare(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	old, _, fresh, err := v.pair(ctx, s.Command(), m)
	if err != nil || fresh { // one that an earlier rotation left unsettled is tried again
		return nil, err
	}
	_, err = v.cfg.Seal(ctx, Pending(m.ID), enroll.Credentials{Username: old.Username, Password: password()})
	return nil, err
}

// The characters of a password, each class once at least: BMCs ask for it. IPMI knows no more than 20 bytes, and tools that
// read passwords by words no space.
var classes = []string{"ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.+"}

const passwordLength = 20

func password() string {
	all := strings.Join(classes, "")
	out := make([]byte, passwordLength)
	for i := range out {
		out[i] = pick(all)
	}
	at := pickN(passwordLength - len(classes))
	for i, class := range classes {
		out[at+i] = pick(class)
	}
	return string(out)
}

func pick(from string) byte { return from[pickN(len(from))] }

// pickN gives a number below n, each as likely as the others.
func pickN(n int) int {
	for {
		var b [1]byte
		_, _ = rand.Read(b[:]) // never fails
		if limit := 256 - 256%n; int(b[0]) < limit {
			return int(b[0]) % n
		}
	}
}

func (v *Verbs) change(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	_, next, fresh, err := v.pair(ctx, s.Command(), m)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return nil, app.Errorf(app.Internal, "no-new-password", "the new password is gone")
	}
	if s.Command().Attempt > 0 && v.cfg.Login(ctx, m, next) == nil {
		s.Log("the BMC takes the new password already")
		return nil, nil
	}
	return nil, v.p.Drivers.For(m, metal.CallOf(s.Command())).Management().Rotate(ctx, next.Password, next.Username)
}

// check finds out which password the BMC takes.
func (v *Verbs) check(ctx context.Context, s workflow.StepContext) (workflow.Verdict, any, error) {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return workflow.Unknown, nil, err
	}
	old, next, fresh, err := v.pair(ctx, s.Command(), m)
	switch {
	case err != nil:
		return workflow.Unknown, nil, err
	case fresh && v.cfg.Login(ctx, m, next) == nil:
		return workflow.Happened, nil, nil
	case v.cfg.Login(ctx, m, old) == nil:
		return workflow.NotHappened, nil, nil
	}
	return workflow.Unknown, nil, nil
}

func (v *Verbs) store(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	_, next, fresh, err := v.pair(ctx, s.Command(), m)
	if err != nil {
		return nil, err
	}
	if !fresh { // an attempt before this one has stored it
		return nil, nil
	}
	if err := v.cfg.Login(ctx, m, next); err != nil {
		return nil, err
	}
	return nil, v.keep(ctx, m, next)
}

// keep puts the new password in the old one's place: the machine's own secret, so that other machines which share the old
// one are left alone.
func (v *Verbs) keep(ctx context.Context, m *app.Machine, next enroll.Credentials) error {
	ref, err := v.cfg.Seal(ctx, stored(m.ID), next)
	if err != nil {
		return err
	}
	_, err = v.p.Machines.UpdateMachine(ctx, m.ID, func(m *app.Machine) error {
		if m.BMC != nil {
			m.BMC.CredentialRef = ref
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.cfg.Forget(ctx, v.cfg.Ref(Pending(m.ID)))
}

// settle ends a rotation that failed or was aborted with the password that the BMC takes. When that cannot be found out, both
// are kept.
func (v *Verbs) settle(ctx context.Context, s workflow.StepContext) error {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return err
	}
	old, next, fresh, err := v.pair(ctx, s.Command(), m)
	if err != nil || !fresh {
		return err
	}
	newErr := v.cfg.Login(ctx, m, next)
	if newErr == nil {
		s.Log("the BMC takes the new password: it is stored")
		return v.keep(ctx, m, next)
	}
	oldErr := v.cfg.Login(ctx, m, old)
	if oldErr == nil {
		s.Log("the BMC takes the old password: it stays")
		return v.cfg.Forget(ctx, v.cfg.Ref(Pending(m.ID)))
	}
	return errors.Join(app.Errorf(app.Interrupted, "credential-unsettled", "whether the BMC of %s takes the old or the new password is not known; both are kept", m.Name).
		Do("rotate again once the BMC answers"), oldErr)
}
