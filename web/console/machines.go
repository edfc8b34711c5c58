package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func machinePages() []Page {
	out := []Page{
		get("/machines", machines), post("/machines/batch", batch),
		get("/machines/enroll", enrollForm), post("/machines/enroll", enroll),
		get("/machines/{id}", machine), raw(get("/machines/{id}/live", machineLive)), get("/machines/{id}/timeline", timeline),
		get("/machines/{id}/deploy", deployForm), get("/machines/{id}/release", releaseForm),
		post("/machines/{id}/edit", editMachine), post("/machines/{id}/confirm-mac", confirmMAC), post("/machines/{id}/forget-kexec", forgetKexec), post("/machines/{id}/drivers", editDrivers),
	}
	for v, f := range verbForms {
		out = append(out, post("/machines/{id}/"+string(v), func(c *Console, q *request) error { return q.verb(v, f) }))
	}
	return out
}

func machines(c *Console, q *request) error {
	d := views.MachinesData{Now: c.api.Now(), Text: q.Query.Get("text"), State: q.Query.Get("state"), Pool: q.Query.Get("pool"), After: q.Query.Get("after")}
	return q.machineList(d)
}

// machineList shows the list as d filters it.
func (q *request) machineList(d views.MachinesData) error {
	var err error
	d.Page, err = with[app.MachinePage](q, "machines.list", url.Values{"text": {d.Text}, "state": {d.State}, "pool": {d.Pool}, "after": {d.After}})
	if err != nil {
		q.refuse(err)
	}
	pools, err := ask[api.List[app.Pool]](q, "pools.list", nil)
	if err != nil {
		return err
	}
	images, err := ask[api.List[app.Image]](q, "images.list", nil)
	if err != nil {
		return err
	}
	d.Pools, d.Images = pools.Items, images.Items
	return q.show("Machines", "/machines", func(p views.Page) templ.Component { return views.Machines(p, d) })
}

// batchBodies are the verbs of a batch and what each is asked with.
func batchBody(choice, image string, ids []string, confirm int) (api.Verb, any, error) {
	verb, action, _ := strings.Cut(choice, ":")
	switch v := api.Verb(verb); v {
	case api.Commission:
		return v, api.Batch[api.CommissionOptions]{IDs: ids, Confirm: confirm}, nil
	case api.Retry, api.Unlock, api.RotateCredential:
		return v, api.Batch[api.NoOptions]{IDs: ids, Confirm: confirm}, nil
	case api.Abort, api.Lock:
		return v, api.Batch[api.ReasonOptions]{IDs: ids}, nil
	case api.Release:
		return v, api.Batch[api.ReleaseOptions]{IDs: ids, Confirm: confirm}, nil
	case api.Power:
		return v, api.Batch[api.PowerOptions]{IDs: ids, Options: api.PowerOptions{Action: action}, Confirm: confirm}, nil
	case api.Deploy:
		return v, api.Batch[app.DeploySpec]{IDs: ids, Options: app.DeploySpec{Image: image}, Confirm: confirm}, nil
	}
	return "", nil, app.Invalid("verb", "nothing to do was chosen").Do("choose what to do with the machines")
}

// batch does a verb to the chosen machines; those that cannot be undone ask first.
func batch(c *Console, q *request) error {
	ids, choice := q.form["id"], q.form.Get("verb")
	confirm, _ := strconv.Atoi(q.form.Get("confirm")) // what is no number confirms nothing
	verb, body, err := batchBody(choice, q.form.Get("image"), ids, confirm)
	if err == nil && len(ids) == 0 {
		err = app.Invalid("id", "no machine was chosen").Do("tick the machines in the list")
	}
	if err == nil && (verb == api.Release || verb == api.Deploy) {
		if asked, err := q.confirmBatch(verb, nil); asked || err != nil {
			return err
		}
	}
	d := views.MachinesData{Now: c.api.Now()}
	if err != nil {
		q.refuse(err)
		return q.machineList(d)
	}
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(api.Patience(len(ids))))
	res, err := ask[api.VerbResults](q, "machines.batch."+string(verb), body)
	if e, ok := app.AsError(err); ok && e.Reason == api.ReasonConfirm {
		_, err := q.confirmBatch(verb, e)
		return err
	}
	if err == nil && res.Approval != nil {
		return q.done("/approvals", "It waits for a second operator.")
	}
	if err != nil {
		q.refuse(err)
		return q.machineList(d)
	}
	refused := 0
	for _, r := range res.Items {
		line := views.BatchLine{Name: r.MachineID, Error: r.Error}
		if m, err := at[*app.Machine](q, "machines.get", "id", r.MachineID, nil); err == nil {
			line.Name = m.Name
		}
		if r.Error != nil {
			refused++
		}
		d.Results = append(d.Results, line)
	}
	if refused == 0 {
		return q.done("/machines", fmt.Sprintf("%s was started on %d machines.", strings.ToUpper(choice[:1])+choice[1:], len(res.Items)))
	}
	return q.machineList(d)
}

// confirmBatch asks for the number of machines, unless it was typed right already.
// refused is why the API asks, or nil.
func (q *request) confirmBatch(v api.Verb, refused *app.Error) (asked bool, err error) {
	d := views.BatchData{Verb: string(v), Choice: q.form.Get("verb"), Image: q.form.Get("image")}
	for _, id := range q.form["id"] {
		m, err := at[*app.Machine](q, "machines.get", "id", id, nil)
		if err != nil {
			return false, err
		}
		d.Machines = append(d.Machines, *m)
	}
	if v == api.Deploy {
		img, err := at[*app.Image](q, "images.get", "id", d.Image, nil)
		if err != nil {
			q.refuse(app.Invalid("image", "no image was chosen").Do("choose one beside the verb"))
			return true, q.machineList(views.MachinesData{Now: q.c.api.Now()})
		}
		d.ImageName = img.Name
	}
	switch typed := q.form.Get("confirm"); {
	case typed == strconv.Itoa(len(d.Machines)) && refused == nil:
		return false, nil
	case typed != "":
		q.refuse(app.Invalid("confirm", "is not %d", len(d.Machines)))
	}
	return true, q.show(string(v), "/machines", func(p views.Page) templ.Component { return views.Batch(p, d) })
}

func enrollForm(c *Console, q *request) error { return q.enrollPage("", nil) }

// enrollPage shows the form of a new machine, or of a discovered one.
func (q *request) enrollPage(mac string, card *api.Card) error {
	if err := q.Who.Need(app.PermMachinesWrite); err != nil {
		return err
	}
	drivers, err := ask[api.DriverList](q, "drivers.list", nil)
	if err != nil {
		return err
	}
	profiles, err := ask[api.List[app.Profile]](q, "profiles.list", nil)
	if err != nil {
		return err
	}
	pools, err := ask[api.List[app.Pool]](q, "pools.list", nil)
	if err != nil {
		return err
	}
	d := views.EnrollData{Drivers: drivers.Items, Profiles: profiles.Items, Pools: pools.Items, Card: card, MAC: mac}
	title, here := "Enroll a machine", "/machines"
	if mac != "" {
		title, here = "Accept "+mac, "/discovered"
	}
	return q.show(title, here, func(p views.Page) templ.Component { return views.Enroll(p, d) })
}

// bmc reads the management controller of the form; nil when its fields are empty.
func (q *request) bmc() *api.BMCInput {
	f := q.form
	b := &api.BMCInput{Driver: f.Get("bmc.driver"), Address: f.Get("bmc.address"), CredentialsRef: strings.TrimSpace(f.Get("bmc.credentialsRef")), SPKI: f.Get("bmc.tlsSpkiSha256")}
	if o := strings.TrimSpace(f.Get("bmc.driverOptions")); o != "" {
		b.Options = []byte(o)
	}
	if f.Get("username") != "" || f.Get("password") != "" {
		b.Credentials = &api.Credentials{Username: f.Get("username"), Password: f.Get("password")}
	}
	if b.Address == "" && b.CredentialsRef == "" && b.Credentials == nil {
		return nil
	}
	return b
}

// testBMC asks the BMC of the form, and keeps the form with what was said. The typed password is typed again: it is not
// sent back to the browser.
func (q *request) testBMC(mac string) error {
	in := q.bmc()
	if in == nil {
		in = &api.BMCInput{Driver: q.form.Get("bmc.driver")}
	}
	card, err := ask[*api.Card](q, "machines.test-bmc", *in)
	if err != nil {
		e, ok := app.AsError(err)
		if !ok {
			return err
		}
		card = &api.Card{Error: e}
	}
	q.page.Form = q.form
	return q.enrollPage(mac, card)
}

func enroll(c *Console, q *request) error {
	if q.form.Get("do") == "test" {
		return q.testBMC("")
	}
	in, err := q.enrollInput()
	if err == nil {
		var m *app.Machine
		if m, err = ask[*app.Machine](q, "machines.enroll", in); err == nil {
			return q.done("/machines/"+m.ID, m.Name+" is enrolled. Commission it next.")
		}
	}
	q.refuse(err)
	return q.enrollPage("", nil)
}

func (q *request) enrollInput() (api.EnrollInput, error) {
	f := q.form
	in := api.EnrollInput{Name: strings.TrimSpace(f.Get("name")), BMC: q.bmc(), Pool: f.Get("pool"), Profile: f.Get("hardwareProfile"), Note: f.Get("note"), ProductUUID: app.UUID(strings.TrimSpace(f.Get("productUuid"))),
		Firmware: app.Firmware(f.Get("firmware"))}
	for _, s := range words(f.Get("macs")) {
		in.MACs = append(in.MACs, app.MAC(s))
	}
	var err error
	if in.Labels, err = labels(f.Get("labels")); err != nil {
		return in, err
	}
	in.Force = f.Get("force") != ""
	in.Drivers, err = bindings(f.Get("drivers"))
	return in, err
}

// editDrivers replaces the machine's own bindings.
func editDrivers(c *Console, q *request) error {
	own, err := bindings(q.form.Get("drivers"))
	if err == nil {
		if own == nil {
			own = map[string]app.Binding{}
		}
		_, err = ask[*app.Machine](q, "machines.change", api.MachineChange{Drivers: &own, Force: q.form.Get("force") != ""})
	}
	return q.back(err, "The drivers are bound.")
}

func confirmMAC(c *Console, q *request) error {
	_, err := ask[*app.Machine](q, "machines.confirm-mac", api.ConfirmInput{MAC: app.MAC(q.form.Get("mac"))})
	return q.back(err, "The port is confirmed.")
}

func editMachine(c *Console, q *request) error {
	l, err := labels(q.form.Get("labels"))
	if err != nil {
		return q.back(err, "")
	}
	if l == nil {
		l = map[string]string{}
	}
	name, note, pool, profile := q.form.Get("name"), q.form.Get("note"), q.form.Get("pool"), q.form.Get("hardwareProfile")
	order := app.BootPolicy(q.form.Get("bootOrder"))
	_, err = ask[*app.Machine](q, "machines.change", api.MachineChange{Name: &name, Note: &note, Pool: &pool, Profile: &profile, BootOrder: &order, Labels: &l})
	return q.back(err, "Saved.")
}

// back returns to the machine's page, with the error or the notice.
func (q *request) back(err error, notice string) error {
	if err == nil {
		return q.done("/machines/"+q.Path["id"], notice)
	}
	q.refuse(err)
	return machine(q.c, q)
}

// words splits a field of several values.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' || r == ';' || r == '\n' || r == '\r' || r == '\t' })
}

// lines splits a field of one value a line.
func lines(s string) []string {
	var out []string
	for l := range strings.SplitSeq(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

func labels(s string) (map[string]string, error) {
	var out map[string]string
	for _, l := range lines(s) {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return nil, app.Invalid("labels", "a line is not of the form key=value")
		}
		if out == nil {
			out = map[string]string{}
		}
		out[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return out, nil
}
