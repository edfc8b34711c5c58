package console

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

// machineData collects what a machine's page shows.
func (q *request) machineData() (views.MachineData, error) {
	d := views.MachineData{Now: q.c.api.Now()}
	m, err := ask[*app.Machine](q, "machines.get", nil)
	if err != nil {
		return d, err
	}
	d.M = *m
	flows, err := with[api.List[workflow.Workflow]](q, "workflows.list", url.Values{"machine": {m.ID}, "limit": {"8"}})
	if err != nil {
		return d, err
	}
	d.Flows = flows.Items
	d.Active = shown(m, flows.Items)
	seen, err := with[api.Timeline](q, "machines.timeline", url.Values{"limit": {"100"}})
	if err != nil {
		return d, err
	}
	d.Timeline, d.Verdict = seen.Items, seen.Verdict
	lacks, err := ask[api.List[api.DriverProblem]](q, "machines.driver-problems", nil)
	if err != nil {
		return d, err
	}
	d.Lacks = lacks.Items
	if err := q.inventory(&d); err != nil {
		return d, err
	}
	if err := q.tests(&d); err != nil {
		return d, err
	}
	if err := q.bootOrder(&d); err != nil {
		return d, err
	}
	if err := q.kexec(&d); err != nil {
		return d, err
	}
	state, err := ask[*api.ConsoleState](q, "machines.console-state", nil)
	if err != nil {
		return d, err
	}
	d.Console = *state
	d.Mark = machineMark(d)
	return d, nil
}

// shown is the workflow of the live panel: the active one, else the last if it went wrong.
func shown(m *app.Machine, flows []workflow.Workflow) *workflow.Workflow {
	for i := range flows {
		if flows[i].ID == m.WorkflowID || m.WorkflowID == "" && i == 0 && m.State == app.StateFailed {
			return &flows[i]
		}
	}
	return nil
}

func (q *request) inventory(d *views.MachineData) error {
	inv, err := ask[*api.Inventory](q, "machines.inventory", nil)
	if app.CodeOf(err) == app.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	var v agentv1.Inventory
	if err := json.Unmarshal(inv.Inventory, &v); err != nil {
		return err
	}
	d.Inventory, d.Taken = &v, inv.Taken
	return nil
}

// timeline shows a machine's timeline, page by page.
func timeline(c *Console, q *request) error {
	m, err := ask[*app.Machine](q, "machines.get", nil)
	if err != nil {
		return err
	}
	v := url.Values{"limit": {"200"}}
	for _, name := range []string{"kind", "before"} {
		if s := q.Query.Get(name); s != "" {
			v.Set(name, s)
		}
	}
	t, err := with[api.Timeline](q, "machines.timeline", v)
	if err != nil {
		return err
	}
	d := views.TimelineData{M: *m, Items: t.Items, Next: t.Next, Kinds: v.Get("kind"), Before: v.Get("before"), Verdict: t.Verdict}
	return q.show("Timeline of "+m.Name, "/machines", func(p views.Page) templ.Component { return views.MachineTimeline(p, d) })
}

// offers adds what the machine's forms offer.
func (q *request) offers(d *views.MachineData) error {
	images, err := ask[api.List[app.Image]](q, "images.list", nil)
	if err != nil {
		return err
	}
	pools, err := ask[api.List[app.Pool]](q, "pools.list", nil)
	if err != nil {
		return err
	}
	profiles, err := ask[api.List[app.Profile]](q, "profiles.list", nil)
	if err != nil {
		return err
	}
	s, err := ask[api.Settings](q, "settings.get", nil)
	if err != nil {
		return err
	}
	d.Images, d.Pools, d.Profiles, d.SSHKeys = images.Items, pools.Items, profiles.Items, strings.Join(s.SSHKeys, "\n")
	return nil
}

// machineView shows one of the pages of a machine.
func (q *request) machineView(title string, view func(views.Page, views.MachineData) templ.Component) error {
	d, err := q.machineData()
	if err != nil {
		return err
	}
	if err := q.offers(&d); err != nil {
		return err
	}
	q.page.Refresh = d.M.WorkflowID != ""
	return q.show(strings.TrimSpace(title+" "+d.M.Name), "/machines", func(p views.Page) templ.Component { return view(p, d) })
}

func machine(c *Console, q *request) error { return q.machineView("", views.Machine) }

func deployForm(c *Console, q *request) error {
	if err := q.Who.Need(app.PermMachinesWrite); err != nil {
		return err
	}
	return q.machineView("Deploy on", views.Deploy)
}

func releaseForm(c *Console, q *request) error {
	if err := q.Who.Need(app.PermMachinesWrite); err != nil {
		return err
	}
	return q.machineView("Release", views.Release)
}

// verbForm is how a verb's form is read and answered.
type verbForm struct {
	read   func(q *request, m *app.Machine) (any, error)
	notice string
	page   func(*Console, *request) error // where a refusal is shown; nil: the machine's page
}

func noOptions(*request, *app.Machine) (any, error) { return api.NoOptions{}, nil }

func reason(q *request, _ *app.Machine) (any, error) {
	return api.ReasonOptions{Reason: q.form.Get("reason")}, nil
}

var verbForms = map[api.Verb]verbForm{
	api.Commission: {readCommission, "Commissioning has begun.", nil},
	api.Deploy:     {readDeploy, "Deploying has begun.", deployForm},
	api.Release:    {readRelease, "Releasing has begun.", releaseForm},
	api.Rescue:     {readRescue, "The rescue system is being booted.", nil},
	api.ExitRescue: {noOptions, "Leaving rescue.", nil},
	api.BootISO:    {readBootISO, "The ISO is being booted.", machine},
	api.ExitISO:    {readExitISO, "Leaving the ISO.", nil},
	api.Adopt:      {noOptions, "The machine is adopted: its system is left alone.", nil},
	api.Power:      {readPower, "The power change has begun.", nil},

	api.RotateCredential: {noOptions, "The password is being changed.", nil},

	api.Abort:    {reason, "The workflow is being ended.", nil},
	api.Retry:    {noOptions, "Trying again.", nil},
	api.Override: {readOverride, "The state is overridden.", nil},
	api.Lock:     {reason, "The machine is locked.", nil},
	api.Unlock:   {noOptions, "The machine is unlocked.", nil},
	api.Retire:   {readRetire, "The machine is retired.", nil},
	api.Delete:   {readDelete, "", nil},
}

// verb does what a form asks.
func (q *request) verb(v api.Verb, f verbForm) error {
	m, err := ask[*app.Machine](q, "machines.get", nil)
	if err != nil {
		return err
	}
	in, err := f.read(q, m)
	if err == nil {
		_, err = ask[api.VerbResult](q, "machines."+string(v), in)
	}
	switch {
	case err == nil && v == api.Delete:
		return q.done("/machines", m.Name+" is forgotten.")
	case err == nil || f.page == nil:
		return q.back(err, f.notice)
	}
	q.refuse(err)
	return f.page(q.c, q)
}

func readDeploy(q *request, m *app.Machine) (any, error) {
	f := q.form
	if f.Get("redeploy") != "" {
		if err := typed(q, m); err != nil {
			return nil, err
		}
	}
	d := app.DeploySpec{Image: f.Get("image"), Hostname: strings.TrimSpace(f.Get("hostname")), KernelArgs: strings.TrimSpace(f.Get("kernelArgs")), SSHKeys: lines(f.Get("sshKeys")),
		UserData: strings.ReplaceAll(f.Get("userData"), "\r\n", "\n"), ColdProof: f.Get("coldProof") != "", Redeploy: f.Get("redeploy") != "", WipeOthers: f.Get("wipeOthers") != "",
		SkipChecks: f.Get("skipChecks") != ""}
	d.Boot = app.BootPath(f.Get("boot"))
	how, which, _ := strings.Cut(f.Get("disk"), ":")
	switch how {
	case "serial":
		d.Disk.Serial = which
	case "wwn":
		d.Disk.WWN = which
	case "name":
		d.Disk.Name = which
	}
	return d, nil
}

// typed refuses when the machine's name was not typed.
func typed(q *request, m *app.Machine) error {
	if q.form.Get("confirm") != m.Name {
		return app.Invalid("confirm", "is not the name of this machine").Do("type %s", m.Name)
	}
	return nil
}

func readRelease(q *request, m *app.Machine) (any, error) {
	if err := typed(q, m); err != nil {
		return nil, err
	}
	var o api.ReleaseOptions
	for _, s := range q.form["serial"] {
		o.Disks = append(o.Disks, app.DiskID{Serial: s})
	}
	return o, nil
}

func readRescue(q *request, _ *app.Machine) (any, error) {
	return api.RescueOptions{AuthorizedKeys: lines(q.form.Get("authorizedKeys"))}, nil
}

func readBootISO(q *request, m *app.Machine) (any, error) {
	spec := app.ISOSpec{Image: q.form.Get("image"), Via: app.ISOVia(q.form.Get("via")), OverDeployed: m.State == app.StateDeployed}
	if spec.OverDeployed {
		return spec, typed(q, m)
	}
	return spec, nil
}

func readExitISO(q *request, _ *app.Machine) (any, error) {
	return api.ExitISOOptions{Installed: q.form.Get("installed") != ""}, nil
}

func readPower(q *request, _ *app.Machine) (any, error) {
	return api.PowerOptions{Action: q.form.Get("action")}, nil
}

func readOverride(q *request, _ *app.Machine) (any, error) {
	return api.OverrideOptions{State: app.State(q.form.Get("state")), Reason: q.form.Get("reason")}, nil
}

func readRetire(q *request, _ *app.Machine) (any, error) {
	return api.RetireOptions{PowerOff: q.form.Get("powerOff") != ""}, nil
}

func readDelete(q *request, m *app.Machine) (any, error) {
	return api.RetireOptions{Force: q.form.Get("force") != ""}, typed(q, m)
}
