package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Steps that the others look back at.
const (
	stepKexec = "kexec"
	stepAlive = "alive"
	stepAgain = "retreat-alive"
	stepHome  = "home"
)

// waitMargin is how much longer an attempt may take than what it waits for, so that an appliance that was down for a while
// waits the whole time again.
const waitMargin = 2

// entered is the result of the waits for a first sign.
type entered struct {
	Alive   bool   `json:"alive"`
	Retreat string `json:"retreat,omitempty"` // kebab-case: why the machine is reset into its disk now
	Reason  string `json:"reason,omitempty"`  // the same in a sentence
	Unheard bool   `json:"unheard,omitempty"` // silent, as its network makes it: that says nothing
}

// homely is the result of the wait for the call.
type homely struct {
	Confirmed bool `json:"confirmed"`
}

// deadMan are the steps that follow once the system was entered: the first sign, a reset into the disk when there is none,
// and the call.
func deadMan() []workflow.Step {
	return []workflow.Step{
		site(stepAlive, "Wait for the first sign of the system", kindAlive, waitMargin*metal.OSAlive),
		metal.Power("retreat-off", "If nothing is heard: cut the power", "off"),
		site("retreat-forget", "If nothing is heard: forget earlier signs", kindForget, time.Minute),
		metal.BootDevice("retreat-disk", "If nothing is heard: boot from the disk from now on", "disk", true),
		metal.Power("retreat-on", "If nothing is heard: power on", "on"),
		site(stepAgain, "If nothing is heard: wait for a sign after the reset", kindAgain, waitMargin*metal.OSAlive),
		site(stepHome, "Wait for the system to say that it runs", kindHome, waitMargin*metal.OSPhonedHome),
	}
}

// unneeded says which of the steps that were planned are not needed, by what was found out.
func unneeded(w *workflow.Workflow, at int) string {
	first, again, home := ended[entered](w, stepAlive), ended[entered](w, stepAgain), ended[homely](w, stepHome)
	unheard := first != nil && first.Unheard || again != nil && again.Unheard
	switch id := w.Steps[at].ID; {
	case strings.HasPrefix(id, "retreat-") && first != nil && first.Unheard:
		return "nothing can be heard of this system, so silence says nothing"
	case strings.HasPrefix(id, "retreat-") && first != nil && first.Retreat == "":
		return "the system showed a sign of life"
	case id == stepHome && unheard:
		return "the system was not heard, and is not expected to call"
	case strings.HasPrefix(id, "proof") && first != nil && first.Retreat != "":
		return "the disk was booted cold already"
	case strings.HasPrefix(id, "proof") && (unheard || home != nil && !home.Confirmed):
		return "the system has not called, so a cold boot could not be told from it; it is left alone"
	}
	return ""
}

// ended gives a step's result, nil when it has none.
func ended[T any](w *workflow.Workflow, id string) *T {
	for _, s := range w.Steps {
		var out T
		if s.ID == id && s.State == workflow.StepDone && len(s.Result) > 0 && decode(s.Result, &out) == nil {
			return &out
		}
	}
	return nil
}

func isAlive(d *app.Deployment) bool { return !d.Alive.IsZero() }

// awaitAlive waits for a sign of the system. A machine of which nothing is heard is to be reset into its disk, once; one
// that shows any sign is not: its first boot may be slow.
func (v *Verbs) awaitAlive(ctx context.Context, s workflow.StepContext) (any, error) {
	if err := v.p.Boots.Revoke(ctx, s.Command().MachineID); err != nil {
		return nil, err
	}
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	var jump agentv1.KexecResult
	if s.Result(stepKexec, &jump) && jump.Refused != nil {
		return v.retreat(ctx, s, app.KexecRefused, jump.Refused.Reason, jump.Refused.Message)
	}
	w := wait{what: "waiting for the first sign of the installed system", silence: v.cfg.Silence, limit: metal.OSAlive, seen: isAlive}
	if pl.Hearing == hearsCall { // it may be well on its way to the only sign it can give
		w.silence = metal.OSAlive
	}
	n, err := v.await(ctx, s, w)
	switch {
	case err != nil:
		return nil, err
	case n.seen:
		return entered{Alive: true}, v.stays(ctx, s, &pl)
	case n.busy:
		s.Log("the console shows that the system is at work: it is given more time")
		return entered{Alive: true}, errors.Join(v.alive(ctx, s, ""), v.stays(ctx, s, &pl))
	case n.dead != "":
		return v.retreat(ctx, s, app.KexecPanicked, "os-panicked", "the kernel of the system stopped: "+clip(n.dead, 200))
	case n.cutOff:
		return nil, app.Errorf(app.Timeout, "os-not-waited-for", "the appliance was not up long enough to tell whether the system lives; the machine was left alone").
			Do("look at the machine's console; then retry, which waits again")
	case pl.Hearing == hearsNothing:
		s.Log("nothing was heard of the system, and by its network nothing can be: it is left alone")
		return entered{Unheard: true}, nil
	}
	return v.retreat(ctx, s, app.KexecSilent, "os-silent", fmt.Sprintf("nothing was heard of the system for %s after it was started", w.silence))
}

// retreat decides that the machine is reset into its disk, unless a sign came at the last moment, and remembers a kexec that
// failed.
func (v *Verbs) retreat(ctx context.Context, s workflow.StepContext, o app.KexecOutcome, reason, sentence string) (any, error) {
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	alive := false
	err = v.deployment(ctx, s, func(d *app.Deployment) {
		if alive = isAlive(d); !alive {
			d.BootPath, d.Retreat = "firmware", sentence
		}
	})
	if err != nil || alive {
		return entered{Alive: alive}, err
	}
	if pl.Kexec {
		if err := v.remember(ctx, s, o, reason, sentence); err != nil {
			return nil, err
		}
		s.Log("kexec is given up: %s. The power is cut, and the machine boots its disk through the firmware, once", sentence)
	} else {
		s.Log("%s. The power is cut, and the machine boots its disk once more", sentence)
	}
	return entered{Retreat: reason, Reason: sentence}, nil
}

// stays takes back a reset that was decided by an appliance which ended before it could begin with it, and the word that kexec
// failed: first, for the reset is what tells that there is one.
func (v *Verbs) stays(ctx context.Context, s workflow.StepContext, pl *plan) error {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return err
	}
	if pl.Kexec && m.Deployment != nil && m.Deployment.Retreat != "" {
		if err := v.cfg.Trials.ForgetKexecTrial(ctx, trialOf(s)); err != nil {
			return err
		}
	}
	return v.deployment(ctx, s, func(d *app.Deployment) {
		if d.Retreat != "" {
			d.BootPath, d.Retreat = bootPath(pl), ""
		}
	})
}

// remember notes how kexec went. Told twice, it is kept once.
func (v *Verbs) remember(ctx context.Context, s workflow.StepContext, o app.KexecOutcome, reason, sentence string) error {
	pl, err := input(s)
	if err != nil {
		return err
	}
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return err
	}
	t := &app.KexecTrial{Attempt: trialOf(s), Make: app.KexecMake(m), Profile: m.Profile, Image: pl.Image, Machine: m.Name, Outcome: o, Reason: reason, Sentence: sentence, Time: v.p.Now().UTC()}
	return v.cfg.Trials.PutKexecTrial(ctx, t)
}

// trialOf is the attempt at kexec that a workflow's trial is kept under.
func trialOf(s workflow.StepContext) string {
	for _, step := range s.Workflow().Steps {
		if step.ID == stepKexec {
			return fmt.Sprintf("wf:%s:%s#%d", s.Command().WorkflowID, stepKexec, step.Attempt)
		}
	}
	return ""
}

// forget drops the signs of the boot that was given up: the machine is off now, and what is heard from here on is of the
// next.
func (v *Verbs) forget(ctx context.Context, s workflow.StepContext) (any, error) {
	return nil, v.deployment(ctx, s, func(d *app.Deployment) {
		d.Alive, d.PhonedHome, d.Heartbeat, d.BootID, d.Confirmed = time.Time{}, time.Time{}, time.Time{}, "", false
	})
}

// awaitAgain waits for a sign of the system after the reset. There is no second reset.
func (v *Verbs) awaitAgain(ctx context.Context, s workflow.StepContext) (any, error) {
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	w := wait{what: "waiting for the first sign of the system after the reset", silence: metal.OSAlive, limit: metal.OSAlive, seen: isAlive}
	if pl.Hearing == hearsNothing {
		w.silence = v.cfg.Silence
	}
	n, err := v.await(ctx, s, w)
	switch {
	case err != nil:
		return nil, err
	case n.seen:
		return entered{Alive: true}, nil
	case n.busy:
		return entered{Alive: true}, v.alive(ctx, s, "")
	case n.dead != "":
		return nil, app.Errorf(app.Unavailable, "os-panicked", "the image was written and read back, but the kernel of the installed system stopped: %s", clip(n.dead, 200)).
			Do("look at the machine's console; then deploy with other kernel arguments or another image")
	case pl.Hearing != hearsAll && !n.cutOff:
		return entered{Unheard: true}, nil
	}
	return nil, app.Errorf(app.Timeout, "os-silent", "the image was written and read back, but the installed system never showed a sign of life").
		Do("look at the machine's console: firmware may not find the disk's loader; then retry or release")
}

// awaitHome waits for the call. A system that lives but never calls is deployed, not confirmed.
func (v *Verbs) awaitHome(ctx context.Context, s workflow.StepContext) (any, error) {
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	n, err := v.await(ctx, s, wait{what: "the system shows signs of life; waiting for it to call home", limit: metal.OSPhonedHome, seen: func(d *app.Deployment) bool { return d.Confirmed }})
	if err != nil {
		return nil, err
	}
	if !n.seen {
		s.Log("the system never called home: deployed, not confirmed")
	}
	w := s.Workflow()
	if first := ended[entered](&w, stepAlive); n.seen && pl.Kexec && (first == nil || first.Retreat == "") {
		err = v.remember(ctx, s, app.KexecWorked, "", "")
	}
	return homely{Confirmed: n.seen}, err
}

// awaitProof waits for a call from another boot than the first: the disk boots by itself.
func (v *Verbs) awaitProof(ctx context.Context, s workflow.StepContext) (any, error) {
	after := s.Workflow().Steps[s.Workflow().Cursor-1].Started
	n, err := v.await(ctx, s, wait{what: "waiting for the system to call home after a cold boot", limit: metal.OSPhonedHome, seen: func(d *app.Deployment) bool { return d.Heartbeat.After(after) }})
	if err != nil {
		return nil, err
	}
	if !n.seen {
		return nil, app.Errorf(app.Timeout, "cold-boot-silent", "the system ran after kexec but did not call home after a cold boot from its disk").
			Do("look at the machine's console: firmware may not find the disk's loader")
	}
	return nil, v.deployment(ctx, s, func(d *app.Deployment) { d.ColdBoot = v.p.Now().UTC() })
}

// left says in a sentence what a deployed machine's system has not said itself, "" when it has said all.
func left(d *app.Deployment, w *workflow.Workflow, pl *plan) string {
	first, again := ended[entered](w, stepAlive), ended[entered](w, stepAgain)
	if d.Confirmed {
		return ""
	}
	if first == nil || !first.Unheard && (again == nil || !again.Unheard) {
		return "deployed, not confirmed: the system shows signs of life but did not call home"
	}
	why := "the network that the system was given has no way to this appliance"
	if again != nil {
		why = "nothing came from the static addresses that the system was given, after a reset either"
	}
	return fmt.Sprintf("deployed, not heard from: the image was written and read back, and %s. Look for the system at %s or on its console; its first call, whenever it comes, confirms it", why, addresses(pl.Network))
}

func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
