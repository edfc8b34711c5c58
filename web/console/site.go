package console

import (
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func sitePages() []Page {
	return []Page{
		get("/drivers", drivers), post("/drivers/{id}/pick", pickDriver),
		get("/access", accessPage), post("/access/users", addUser), post("/access/users/{id}", changeUser),
		post("/access/users/{id}/delete", remove("users.delete", "/access", "The user is deleted.", accessPage)),
		post("/access/tokens", addToken), post("/access/tokens/{id}/delete", remove("tokens.delete", "/access", "The token is revoked.", accessPage)),
		post("/access/password", changePassword),
		get("/settings", settings), post("/settings", saveSettings),
		post("/secrets", saveSecret), post("/secrets/{name}/delete", remove("secrets.delete", "/settings", "The secret is deleted.", settings)),
	}
}

// remove makes the handler of a delete button; a refusal is shown on the page that page shows.
func remove(id, to, notice string, page func(*Console, *request) error) func(*Console, *request) error {
	return func(c *Console, q *request) error {
		if _, err := ask[any](q, id, nil); err != nil {
			q.refuse(err)
			return page(c, q)
		}
		return q.done(to, notice)
	}
}

func drivers(c *Console, q *request) error {
	l, err := ask[api.DriverList](q, "drivers.list", nil)
	if err != nil {
		return err
	}
	hosted, err := ask[api.List[api.Plugin]](q, "plugins.list", nil)
	if err != nil {
		return err
	}
	return q.show("Drivers & plugins", "/drivers", func(p views.Page) templ.Component { return views.Drivers(p, l, hosted.Items, c.api.Now()) })
}

// pickDriver makes a version of a driver the one that is used.
func pickDriver(c *Console, q *request) error {
	version := q.form.Get("version")
	if _, err := ask[any](q, "drivers.pick", api.DriverPick{Version: &version}); err != nil {
		q.refuse(err)
		return drivers(c, q)
	}
	if version == "" {
		return q.done("/drivers", "The highest version of "+q.Path["id"]+" is used again.")
	}
	return q.done("/drivers", "Version "+version+" of "+q.Path["id"]+" is used from now on.")
}

// bindings reads drivers by kind from YAML.
func bindings(s string) (map[string]app.Binding, error) {
	var out map[string]app.Binding
	return out, fromYAML("drivers", s, &out)
}

func accessPage(c *Console, q *request) error { return q.accessView(nil) }

func (q *request) accessView(fresh *api.NewToken) error {
	users, err := ask[api.List[app.User]](q, "users.list", nil)
	if err != nil {
		return err
	}
	tokens, err := ask[api.List[app.APIToken]](q, "tokens.list", nil)
	if err != nil {
		return err
	}
	d := views.AccessData{Users: users.Items, Tokens: tokens.Items, Fresh: fresh, Now: q.c.api.Now()}
	return q.show("Access", "/access", func(p views.Page) templ.Component { return views.Access(p, d) })
}

func addUser(c *Console, q *request) error {
	in := api.UserInput{Name: strings.TrimSpace(q.form.Get("name")), Password: q.form.Get("password"), Role: app.Role(q.form.Get("role"))}
	u, err := ask[*app.User](q, "users.create", in)
	if err != nil {
		q.refuse(err)
		return accessPage(c, q)
	}
	return q.done("/access", u.Name+" may log in now.")
}

func changeUser(c *Console, q *request) error {
	role, disabled := app.Role(q.form.Get("role")), q.form.Get("disabled") != ""
	in := access.UserChange{Role: &role, Disabled: &disabled}
	if p := q.form.Get("newPassword"); p != "" {
		in.Password = &p
	}
	u, err := ask[*app.User](q, "users.change", in)
	if err != nil {
		q.refuse(err)
		return accessPage(c, q)
	}
	return q.done("/access", u.Name+" is changed.")
}

// addToken makes a token and shows its value in the answer itself: it is nowhere else.
func addToken(c *Console, q *request) error {
	in := api.TokenInput{Name: strings.TrimSpace(q.form.Get("name"))}
	for _, p := range q.form["permission"] {
		in.Permissions = append(in.Permissions, app.Permission(p))
	}
	life, err := time.ParseDuration(q.form.Get("expiresIn"))
	if err != nil {
		q.refuse(app.Invalid("expiresIn", "is not a length of time"))
		return accessPage(c, q)
	}
	in.ExpiresIn = app.Duration(life)
	t, err := ask[*api.NewToken](q, "tokens.create", in)
	if err != nil {
		q.refuse(err)
	}
	return q.accessView(t)
}

func changePassword(c *Console, q *request) error {
	_, err := ask[*api.Whoami](q, "session.password", api.PasswordInput{Old: q.form.Get("old"), New: q.form.Get("new")})
	if err != nil {
		q.refuse(err)
		return accessPage(c, q)
	}
	http.SetCookie(q.w, api.Cookie(q.Login))
	return q.done("/access", "Your password is changed, and your other sessions have ended.")
}

func settings(c *Console, q *request) error {
	s, err := ask[api.Settings](q, "settings.get", nil)
	if err != nil {
		return err
	}
	v, err := ask[api.VersionInfo](q, "version.get", nil)
	if err != nil {
		return err
	}
	d := views.SettingsData{Settings: s, Version: v, Now: c.api.Now()}
	if q.Who.Can(app.PermSecretsWrite) {
		l, err := ask[api.List[app.SealedSecret]](q, "secrets.list", nil)
		if err != nil {
			return err
		}
		d.Secrets = l.Items
	}
	return q.show("Settings", "/settings", func(p views.Page) templ.Component { return views.Settings(p, d) })
}

func saveSettings(c *Console, q *request) error {
	name, keys := strings.TrimSpace(q.form.Get("siteName")), lines(q.form.Get("sshKeys"))
	if _, err := ask[api.Settings](q, "settings.change", api.SettingsChange{SiteName: &name, SSHKeys: &keys}); err != nil {
		q.refuse(err)
		return settings(c, q)
	}
	return q.done("/settings", "Saved.")
}

func saveSecret(c *Console, q *request) error {
	in := api.SecretInput{Value: secret.Login(q.form.Get("username"), q.form.Get("password"))}
	if _, err := at[any](q, "secrets.put", "name", strings.TrimSpace(q.form.Get("secret")), in); err != nil {
		q.refuse(err)
		return settings(c, q)
	}
	return q.done("/settings", "The secret is stored, sealed.")
}
