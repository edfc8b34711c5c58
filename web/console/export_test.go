package console

import (
	"net/http"
	"net/url"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

// Refused serves the page at path as it stands after one of its forms was sent and refused.
func (c *Console) Refused(w http.ResponseWriter, r *http.Request, path string, params map[string]string, who *access.Identity, form url.Values, err *app.Error) error {
	for _, p := range c.Pages() {
		if p.Method == http.MethodGet && p.Path == path {
			q := &request{w: w, r: r, c: c, Call: &api.Call{Context: r.Context(), Who: who, Path: params}, form: form}
			q.page.Who = who
			q.refuse(err)
			return p.handle(c, q)
		}
	}
	return app.Missing("page", path)
}

// RefusedEntry serves a page before the login as it stands after its form was sent and refused.
func (c *Console) RefusedEntry(w http.ResponseWriter, r *http.Request, path string, err *app.Error) error {
	q := &request{w: w, r: r, c: c, Call: &api.Call{Context: r.Context()}, form: url.Values{}}
	q.refuse(err)
	if path == "/setup" {
		return q.show("Set up", "", views.Setup)
	}
	return q.show("Log in", "", func(p views.Page) templ.Component { return views.Login(p, "/") })
}
