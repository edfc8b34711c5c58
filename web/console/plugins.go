package console

import (
	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/event"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func pluginPages() []Page {
	return []Page{get("/plugins/{name}", pluginPage), raw(get("/plugins/{name}/live", pluginLive)), post("/plugins/{name}/restart", restartPlugin)}
}

// pluginData collects what a plugin's page shows.
func (q *request) pluginData() (views.PluginData, error) {
	d := views.PluginData{Now: q.c.api.Now()}
	all, err := ask[api.List[api.Plugin]](q, "plugins.list", nil)
	if err != nil {
		return d, err
	}
	for _, p := range all.Items {
		if p.Name == q.Path["name"] {
			d.P = p
		}
	}
	if d.P.Name == "" {
		return d, app.Missing("plugin", q.Path["name"])
	}
	lines, err := ask[api.List[api.PluginLine]](q, "plugins.logs", nil)
	if err != nil {
		return d, err
	}
	d.Lines, d.Mark = lines.Items, markOf(d.P.State, d.P.Serving)
	return d, nil
}

// pluginLive streams what a plugin's page shows.
func pluginLive(_ *Console, q *request) error {
	return q.live(event.Filter{Kind: "plugin."}, func() (string, []fragment, error) {
		if err := q.again(); err != nil {
			return "", nil, err
		}
		d, err := q.pluginData()
		if err != nil {
			return "", nil, err
		}
		return d.Mark, []fragment{{"plugin", views.PluginNow(d)}}, nil
	})
}

func pluginPage(_ *Console, q *request) error {
	d, err := q.pluginData()
	if err != nil {
		return err
	}
	return q.show(d.P.Name, "/drivers", func(p views.Page) templ.Component { return views.Plugin(p, d) })
}

func restartPlugin(c *Console, q *request) error {
	if _, err := ask[any](q, "plugins.restart", nil); err != nil {
		q.refuse(err)
		return pluginPage(c, q)
	}
	return q.done("/plugins/"+q.Path["name"], "The plugin is being started again.")
}
