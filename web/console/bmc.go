package console

import (
	"strings"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func bmcPages() []Page {
	return []Page{get("/machines/{id}/bmc", func(_ *Console, q *request) error { return q.bmcPage(nil) }), post("/machines/{id}/bmc", setBMC)}
}

// bmcPage shows the form that changes how a machine's BMC is reached or gives it its first one, with what it said when it was tested.
func (q *request) bmcPage(card *api.Card) error {
	if err := q.Who.Need(app.PermMachinesWrite); err != nil {
		return err
	}
	m, err := ask[*app.Machine](q, "machines.get", nil)
	if err != nil {
		return err
	}
	drivers, err := ask[api.DriverList](q, "drivers.list", nil)
	if err != nil {
		return err
	}
	return q.show("BMC of "+m.Name, "/machines", func(p views.Page) templ.Component { return views.BMC(p, *m, drivers.Items, card) })
}

// setBMC tests or saves the form. A typed password is typed again: it is not sent back to the browser.
func setBMC(_ *Console, q *request) error {
	f := q.form
	in := api.BMCChange{Driver: f.Get("driver"), Address: strings.TrimSpace(f.Get("address")), AcceptPin: strings.TrimSpace(f.Get("acceptPin")), CredentialsRef: strings.TrimSpace(f.Get("credentialsRef")),
		Another: f.Get("anotherMachine") != "", Test: f.Get("do") == "test"}
	if o := strings.TrimSpace(f.Get("driverOptions")); o != "" {
		in.Options = []byte(o)
	}
	if f.Get("username") != "" || f.Get("password") != "" {
		in.Credentials = &api.Credentials{Username: f.Get("username"), Password: f.Get("password")}
	}
	out, err := ask[*api.BMCChanged](q, "machines.set-bmc", in)
	switch {
	case err == nil && in.Test:
		q.page.Form = f
		return q.bmcPage(out.Card)
	case err == nil:
		return q.done("/machines/"+out.Machine.ID, "The BMC answered, and is reached so from now on.")
	}
	q.refuse(err)
	return q.bmcPage(nil)
}
