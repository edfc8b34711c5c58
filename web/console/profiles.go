package console

import (
	"encoding/json"
	"strings"

	"github.com/a-h/templ"
	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
	"github.com/better-compute/bcd/web/problem"
)

func profilePages() []Page {
	return []Page{
		get("/profiles", profiles), post("/profiles", saveProfile), get("/profiles/new", newProfile), get("/profiles/edit/{name}", editProfile),
		post("/profiles/{name}/delete", remove("profiles.delete", "/profiles", "The profile is deleted.", profiles)),
		post("/pools", savePool), post("/pools/{name}/delete", remove("pools.delete", "/profiles", "The pool is deleted.", profiles)),
	}
}

func profiles(c *Console, q *request) error {
	l, err := ask[api.List[app.Profile]](q, "profiles.list", nil)
	if err != nil {
		return err
	}
	pools, err := ask[api.List[app.Pool]](q, "pools.list", nil)
	if err != nil {
		return err
	}
	return q.show("Profiles & pools", "/profiles", func(p views.Page) templ.Component {
		return views.Profiles(p, views.ProfilesData{Profiles: l.Items, Pools: pools.Items})
	})
}

func newProfile(_ *Console, q *request) error { return q.profileView(views.ProfileData{}) }

func editProfile(_ *Console, q *request) error {
	x, err := ask[*app.Profile](q, "profiles.get", nil)
	if err != nil {
		return err
	}
	return q.profileView(views.ProfileData{Profile: *x})
}

func (q *request) profileView(d views.ProfileData) error {
	title := d.Profile.Name
	if title == "" {
		title = "New profile"
	}
	return q.show(title, "/profiles", func(p views.Page) templ.Component { return views.Profile(p, d) })
}

// fromYAML reads a field of YAML as the JSON of a request, with the same strictness.
func fromYAML(field, text string, into any) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return app.Invalid(field, "is no YAML: %s", strings.TrimPrefix(err.Error(), "yaml: ")).Do("mind the indentation, and quote texts that hold special characters")
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return app.Invalid(field, "has keys that are no texts").Do("quote them")
	}
	err = problem.Decode(raw, into)
	if e, ok := app.AsError(err); ok {
		return app.Invalid(field, "%s %s", e.Field, e.Message).Do("mend it, or take it out")
	}
	return err
}

// profileInput reads the editor.
func (q *request) profileInput() (in api.ProfileInput, err error) {
	err = fromYAML("hardware", q.form.Get("hardware"), &in)
	in.Description, in.KernelArgs, in.KexecOK = q.form.Get("description"), q.form.Get("kernelArgs"), q.form.Get("kexecProven") != ""
	return in, err
}

// saveProfile saves what the editor holds, or only checks it.
func saveProfile(c *Console, q *request) error {
	name := strings.TrimSpace(q.form.Get("name"))
	var d views.ProfileData
	if q.form.Get("form") != "profile:" {
		d.Profile.Name = name
	}
	in, err := q.profileInput()
	if q.form.Get("do") == "check" {
		return q.checkProfile(name, in, err, d)
	}
	if err == nil {
		_, err = at[*app.Profile](q, "profiles.put", "name", name, in)
	}
	if err == nil {
		return q.done("/profiles", "The profile is saved.")
	}
	q.refuse(err)
	if check, cerr := at[api.ProfileCheck](q, "profiles.check", "name", name, in); cerr == nil && len(check.Problems) > 1 {
		d.Check = &check
	}
	return q.profileView(d)
}

// checkProfile shows the editor as it was filled in, with everything that is wrong.
func (q *request) checkProfile(name string, in api.ProfileInput, err error, d views.ProfileData) error {
	check := api.ProfileCheck{}
	if err == nil {
		check, err = at[api.ProfileCheck](q, "profiles.check", "name", name, in)
	}
	if err != nil {
		check.Problems = append(check.Problems, problem.Public(q.r.Context(), q.c.log, err))
	}
	d.Check, q.page.Form = &check, q.form
	return q.profileView(d)
}

func savePool(c *Console, q *request) error {
	in := api.PoolInput{Description: q.form.Get("description"), Policy: app.PoolPolicy{HardwareProfile: q.form.Get("policy.hardwareProfile")}}
	if _, err := at[*app.Pool](q, "pools.put", "name", q.form.Get("name"), in); err != nil {
		q.refuse(err)
		return profiles(c, q)
	}
	return q.done("/profiles", "The pool is saved.")
}
