package deploy

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// SignalConsole carries a line, a string, that the machine printed on its serial console.
const SignalConsole = "os.console"

// wait is what a step waits for.
type wait struct {
	what    string
	silence time.Duration // at most without a sign of a system that runs on the console; 0: no such limit
	limit   time.Duration // at most in all; 0: until the attempt's own end
	seen    func(*app.Deployment) bool
}

// news is how a wait ended.
type news struct {
	seen   bool
	busy   bool   // not seen, but the console showed a system at work until the end
	dead   string // not seen: the line by which its kernel stopped
	cutOff bool   // the attempt's own time was over, which says nothing of the machine
}

// line is what a line of a console says of the system.
type line int

const (
	lineOther line = iota
	lineWorks      // a kernel or its first programs are at work
	lineLogin      // it asks for a login
	linePanic      // the kernel has stopped
)

// workRE is what Linux, systemd and cloud-init print while they start. A firmware prints nothing like it.
var workRE = regexp.MustCompile(`^\[ *[0-9]+\.[0-9]{6}\]|^\[ {2}OK {2}\]|\bsystemd\[1\]:|\bcloud-init\[[0-9]+\]:|^Linux version `)

// read judges a line. What a machine prints is hostile: nothing but the time of a wait depends on it, and that a kernel which
// says that it stops is reset.
func read(text string) line {
	text = strings.TrimSpace(text)
	switch {
	case strings.Contains(text, "Kernel panic - not syncing"):
		return linePanic
	case strings.HasSuffix(text, " login:"):
		return lineLogin
	case workRE.MatchString(text):
		return lineWorks
	}
	return lineOther
}

// await waits until the deployment satisfies w.seen. Waits begin anew after a restart of the appliance: what happened while
// it was down was not heard.
func (v *Verbs) await(ctx context.Context, s workflow.StepContext, w wait) (news, error) {
	id := s.Command().MachineID
	alive, stop := v.p.Flows.Await(ctx, id, SignalAlive)
	defer stop()
	home, stopHome := v.p.Flows.Await(ctx, id, SignalHome)
	defer stopHome()
	console, stopConsole := v.p.Flows.Await(ctx, id, SignalConsole)
	defer stopConsole()
	limit, silence := newTimer(w.limit), newTimer(w.silence)
	defer limit.Stop()
	defer silence.Stop()
	s.Progress(workflow.Progress{Phase: "os", Message: w.what})
	var worked time.Time
	for {
		m, err := v.p.Machines.Machine(ctx, id)
		if err != nil {
			return news{}, err
		}
		if m.Deployment != nil && w.seen(m.Deployment) {
			return news{seen: true}, nil
		}
		select {
		case <-alive:
		case <-home:
		case x := <-console:
			text, _ := x.(string)
			switch read(text) {
			case linePanic:
				return news{dead: text}, nil
			case lineLogin:
				if err := v.alive(ctx, s, "the console asks for a login: the system lives"); err != nil {
					return news{}, err
				}
			case lineWorks:
				if worked = v.p.Now(); w.silence > 0 {
					silence.Reset(w.silence)
				}
			}
		case <-silence.C:
			return news{}, nil
		case <-limit.C:
			return news{busy: !worked.IsZero() && w.silence > 0 && v.p.Now().Sub(worked) < w.silence}, nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), workflow.ErrDeadline) {
				return news{cutOff: true}, nil
			}
			return news{}, fmt.Errorf("waiting for the system: %w", context.Cause(ctx))
		}
	}
}

// newTimer is a timer that never fires for 0.
func newTimer(d time.Duration) *time.Timer {
	if d > 0 {
		return time.NewTimer(d)
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// alive notes that the console shows a system that lives, and says the first time what told so.
func (v *Verbs) alive(ctx context.Context, s workflow.StepContext, says string) error {
	first := false
	err := v.deployment(ctx, s, func(d *app.Deployment) {
		if first = d.Alive.IsZero(); first {
			d.Alive = v.p.Now().UTC()
		}
	})
	if err == nil && first && says != "" {
		s.Log("%s", says)
	}
	return err
}
