package console

import (
	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func pluginPages() []Page {
	return []Page{get("/plugins/{name}", pluginPage), post("/plugins/{name}/restart", restartPlugin)}
}

func pluginPage(c *Console, q *request) error {
	all, err := ask[api.List[api.Plugin]](q, "plugins.list", nil)
	if err != nil {
		return err
	}
	d := views.PluginData{Now: c.api.Now()}
	for _, p := range all.Items {
		if p.Name == q.Path["name"] {
			d.P = p
		}
	}
	if d.P.Name == "" {
		return app.Missing("plugin", q.Path["name"])
	}
	lines, err := ask[api.List[api.PluginLine]](q, "plugins.logs", nil)
	if err != nil {
		return err
	}
	d.Lines = lines.Items
	return q.show(d.P.Name, "/drivers", func(p views.Page) templ.Component { return views.Plugin(p, d) })
}

func restartPlugin(c *Console, q *request) error {
	if _, err := ask[any](q, "plugins.restart", nil); err != nil {
		q.refuse(err)
		return pluginPage(c, q)
	}
	return q.done("/plugins/"+q.Path["name"], "The plugin is being started again.")
}
