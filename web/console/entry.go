package console

import (
	"net/http"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func setupForm(c *Console, q *request) error {
	s, err := ask[api.SetupStatus](q, "setup.status", nil)
	if err != nil {
		return err
	}
	if !s.Needed {
		http.Redirect(q.w, q.r, "/login", http.StatusSeeOther)
		return nil
	}
	return q.show("Set up", "", views.Setup)
}

func setup(c *Console, q *request) error {
	_, err := ask[*api.Whoami](q, "setup.create", api.SetupInput{Code: q.form.Get("code"), Name: q.form.Get("name"), Password: q.form.Get("password")})
	if err != nil {
		q.refuse(err)
		if q.page.Err.Reason == "already-set-up" {
			return q.done("/login", "This appliance is set up already. Log in.")
		}
		return q.show("Set up", "", views.Setup)
	}
	http.SetCookie(q.w, api.Cookie(q.Login))
	return q.done("/", "Welcome. You are the administrator of this appliance.")
}

func loginForm(c *Console, q *request) error {
	if need, err := ask[api.SetupStatus](q, "setup.status", nil); err == nil && need.Needed {
		http.Redirect(q.w, q.r, "/setup", http.StatusSeeOther)
		return nil
	}
	next := local(q.Query.Get("next"))
	if q.Who != nil {
		http.Redirect(q.w, q.r, next, http.StatusSeeOther)
		return nil
	}
	return q.show("Log in", "", func(p views.Page) templ.Component { return views.Login(p, next) })
}

func login(c *Console, q *request) error {
	next := local(q.form.Get("next"))
	_, err := ask[*api.Whoami](q, "session.login", api.LoginInput{Name: q.form.Get("name"), Password: q.form.Get("password")})
	if err != nil {
		q.refuse(err)
		return q.show("Log in", "", func(p views.Page) templ.Component { return views.Login(p, next) })
	}
	http.SetCookie(q.w, api.Cookie(q.Login))
	http.Redirect(q.w, q.r, next, http.StatusSeeOther)
	return nil
}

func logout(c *Console, q *request) error {
	if q.Who != nil {
		if _, err := ask[any](q, "session.logout", nil); err != nil && app.CodeOf(err) != app.Unauthenticated {
			return err
		}
	}
	http.SetCookie(q.w, api.Cookie(nil))
	return q.done("/login", "You are logged out.")
}
