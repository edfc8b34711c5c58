package console

import (
	"net/url"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func overview(c *Console, q *request) error {
	d := views.OverviewData{Now: c.api.Now()}
	var err error
	if d.Page, err = with[app.MachinePage](q, "machines.list", url.Values{"limit": {"1"}}); err != nil {
		return err
	}
	active, err := with[api.List[workflow.Workflow]](q, "workflows.list", url.Values{"active": {"true"}})
	if err != nil {
		return err
	}
	d.Active = active.Items
	events, err := with[api.List[app.Event]](q, "events.list", url.Values{"limit": {"40"}})
	if err != nil {
		return err
	}
	d.Events = events.Items
	d.Names = q.names(append(machinesOf(active.Items), machinesIn(events.Items)...))
	found, err := ask[api.List[app.Discovery]](q, "discoveries.list", nil)
	if err != nil {
		return err
	}
	d.Found = len(found.Items)
	images, err := ask[api.List[app.Image]](q, "images.list", nil)
	if err != nil {
		return err
	}
	subnets, err := ask[api.List[api.SubnetView]](q, "subnets.list", nil)
	if err != nil {
		return err
	}
	health, err := ask[api.List[api.Warning]](q, "health.get", nil)
	if err != nil {
		return err
	}
	d.Images, d.Subnets, d.Warnings = images.Items, subnets.Items, health.Items
	return q.show("Overview", "/", func(p views.Page) templ.Component { return views.Overview(p, d) })
}

// names finds the names of machines; one that is gone has none.
func (q *request) names(ids []string) map[string]string {
	out := map[string]string{"": ""}
	for _, id := range ids {
		if _, ok := out[id]; ok {
			continue
		}
		out[id] = ""
		if m, err := at[*app.Machine](q, "machines.get", "id", id, nil); err == nil {
			out[id] = m.Name
		}
	}
	return out
}

// machinesOf lists the ids of the machines that workflows are about.
func machinesOf(flows []workflow.Workflow) (ids []string) {
	for _, w := range flows {
		ids = append(ids, w.MachineID)
	}
	return ids
}

// machinesIn lists the ids of the machines that events are about.
func machinesIn(events []app.Event) (ids []string) {
	for _, e := range events {
		ids = append(ids, e.MachineID)
	}
	return ids
}

func health(c *Console, q *request) error {
	h, err := ask[api.List[api.Warning]](q, "health.get", nil)
	if err != nil {
		return err
	}
	return q.show("Health", "/health", func(p views.Page) templ.Component { return views.Health(p, h.Items) })
}

func events(c *Console, q *request) error {
	d := views.EventsData{Kind: q.Query.Get("kind"), Machine: q.Query.Get("machine")}
	l, err := with[api.List[app.Event]](q, "events.list", url.Values{"kind": {d.Kind}, "machine": {d.Machine}, "before": {q.Query.Get("before")}})
	if err != nil {
		q.refuse(err)
	}
	d.Events, d.Next, d.Names = l.Items, l.Next, q.names(machinesIn(l.Items))
	return q.show("Events", "/events", func(p views.Page) templ.Component { return views.Events(p, d) })
}
