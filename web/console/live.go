package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/event"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

// lookEvery is how often a live page looks at what it shows, besides when the bus tells of something.
const lookEvery = time.Second

// pingEvery is how many looks without a change pass before a ping.
const pingEvery = 15

// fragment is one part of a page that moves.
type fragment struct {
	name string
	view templ.Component
}

// live streams the fragments that look gives, each when it changed. A mark that differs from the page's, or a change of it,
// tells the page to load itself anew, because more than the fragments moved.
func (q *request) live(f event.Filter, look func() (mark string, parts []fragment, err error)) error {
	mark, parts, err := look()
	if err != nil {
		return err
	}
	sub := q.c.api.Bus.Subscribe(f, 16)
	defer sub.Close()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	s := api.NewStream(q.w)
	if page := q.Query.Get("mark"); page != "" && page != mark {
		_ = s.Send("moved", "now")
		return nil
	}
	sent := map[string]string{}
	for quiet := 0; ; {
		n, err := q.send(s, sent, parts)
		if err != nil {
			return nil // the reader has gone
		}
		if quiet++; n > 0 {
			quiet = 0
		} else if quiet%pingEvery == 0 && s.Ping() != nil {
			return nil
		}
		select {
		case <-q.Done():
			return nil
		case <-sub.C:
		case <-tick.C:
		}
		before := mark
		if mark, parts, err = look(); err != nil || mark != before {
			_ = s.Send("moved", "now")
			return nil
		}
	}
}

// send sends the fragments that differ from what was sent, and says how many.
func (q *request) send(s *api.Stream, sent map[string]string, parts []fragment) (int, error) {
	n := 0
	for _, p := range parts {
		var b strings.Builder
		if err := p.view.Render(context.WithoutCancel(q), &b); err != nil {
			return n, err
		}
		if html := b.String(); sent[p.name] != html {
			if err := s.Send(p.name, html); err != nil {
				return n, err
			}
			sent[p.name] = html
			n++
		}
	}
	return n, nil
}

// again asks who the reader is once more: a session that ended must not go on watching.
func (q *request) again() error {
	who, err := q.c.api.Access.Still(q, q.Who)
	q.Who = who
	return err
}

// machineMark changes when a part of a machine's page changes that is no fragment.
func machineMark(d views.MachineData) string {
	parts := []any{d.M.State, d.M.WorkflowID, d.M.StateReason, d.M.Locked, len(d.M.NICs), d.Taken.UnixNano()}
	if d.Active != nil {
		parts = append(parts, d.Active.State)
	}
	if x := d.M.Deployment; x != nil {
		parts = append(parts, x.Written.UnixNano(), x.Alive.UnixNano(), x.PhonedHome.UnixNano(), x.ColdBoot.UnixNano(), x.Confirmed)
	}
	if d.Tests != nil {
		for _, t := range d.Tests.Items {
			parts = append(parts, t.Result)
		}
	}
	if d.BootOrder != nil {
		parts = append(parts, d.BootOrder.Updated.UnixNano())
	}
	parts = append(parts, d.Console.Holder, d.Console.Lacks != nil)
	for _, x := range d.Lacks {
		parts = append(parts, x.Kind, x.Driver, x.Error.Reason)
	}
	return markOf(parts...)
}

// flowMark is the same for a workflow's page.
func flowMark(w *workflow.Workflow) string { return markOf(w.State) }

func markOf(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintln(parts...)))
	return hex.EncodeToString(sum[:8])
}

func machineLive(c *Console, q *request) error {
	m, err := ask[*app.Machine](q, "machines.get", nil)
	if err != nil {
		return err
	}
	return q.live(event.Filter{MachineID: m.ID}, func() (string, []fragment, error) {
		if err := q.again(); err != nil {
			return "", nil, err
		}
		d, err := q.machineData()
		if err != nil {
			return "", nil, err
		}
		return d.Mark, []fragment{{"state", views.MachineState(d.M)}, {"live", views.MachineNow(d)},
			{"timeline", views.Timeline(d.Timeline, "Nothing has happened to this machine yet.")}}, nil
	})
}

func workflowLive(c *Console, q *request) error {
	return q.live(event.Filter{Workflow: q.Path["id"]}, func() (string, []fragment, error) {
		if err := q.again(); err != nil {
			return "", nil, err
		}
		w, err := ask[*workflow.Workflow](q, "workflows.get", nil)
		if err != nil {
			return "", nil, err
		}
		j, err := ask[api.List[workflow.Entry]](q, "workflows.journal", nil)
		if err != nil {
			return "", nil, err
		}
		return flowMark(w), []fragment{{"live", views.Steps(*w, c.api.Now())}, {"journal", views.Journal(j.Items)}}, nil
	})
}

func imagesLive(c *Console, q *request) error {
	return q.live(event.Filter{Kind: "image."}, func() (string, []fragment, error) {
		if err := q.again(); err != nil {
			return "", nil, err
		}
		l, err := ask[api.List[app.Image]](q, "images.list", nil)
		if err != nil {
			return "", nil, err
		}
		p := views.Page{Who: q.Who}
		return "", []fragment{{"images", views.ImageTable(p, views.ImagesData{Images: l.Items, Now: c.api.Now()})}}, nil
	})
}

func workflows(c *Console, q *request) error {
	d := views.WorkflowsData{Now: c.api.Now(), Active: q.Query.Get("active") == "true"}
	v := url.Values{"before": {q.Query.Get("before")}}
	if d.Active {
		v.Set("active", "true")
	}
	l, err := with[api.List[workflow.Workflow]](q, "workflows.list", v)
	if err != nil {
		return err
	}
	d.Flows, d.Next, d.Names = l.Items, l.Next, q.names(machinesOf(l.Items))
	return q.show("Workflows", "/workflows", func(p views.Page) templ.Component { return views.Workflows(p, d) })
}

func workflowPage(c *Console, q *request) error {
	w, err := ask[*workflow.Workflow](q, "workflows.get", nil)
	if err != nil {
		return err
	}
	j, err := ask[api.List[workflow.Entry]](q, "workflows.journal", nil)
	if err != nil {
		return err
	}
	d := views.WorkflowData{W: *w, Journal: j.Items, Now: c.api.Now(), Machine: w.MachineID, Mark: flowMark(w)}
	if n := q.names([]string{w.MachineID})[w.MachineID]; n != "" {
		d.Machine = n
	}
	q.page.Refresh = w.State.Active()
	return q.show(w.Verb+" "+d.Machine, "/workflows", func(p views.Page) templ.Component { return views.Workflow(p, d) })
}

// decide makes the handler of a decision about a workflow.
func decide(id, notice string, in func(*request) any) func(*Console, *request) error {
	return func(c *Console, q *request) error {
		w, err := ask[*workflow.Workflow](q, id, in(q))
		if err != nil {
			q.refuse(err)
			return workflowPage(c, q)
		}
		return q.done("/machines/"+w.MachineID, notice)
	}
}

func workflowPages() []Page {
	return []Page{
		get("/workflows", workflows), get("/workflows/{id}", workflowPage), raw(get("/workflows/{id}/live", workflowLive)),
		post("/workflows/{id}/retry", decide("workflows.retry", "Trying the step again.", func(*request) any { return nil })),
		post("/workflows/{id}/mark-done", decide("workflows.mark-done", "The step is taken as done.", func(q *request) any { return api.DoneInput{Reason: q.form.Get("reason")} })),
		post("/workflows/{id}/abort", decide("workflows.abort", "The workflow is being ended.", func(q *request) any { return api.ReasonOptions{Reason: q.form.Get("reason")} })),
	}
}
