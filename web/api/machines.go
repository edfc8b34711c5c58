package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
)

// MaxBatch bounds how many machines one request may touch.
const MaxBatch = 1000

// Limits of text an operator gives a machine.
const (
	maxNote   = 2000
	maxLabels = 64
)

// Inventory is what the agent found on a machine, and when.
type Inventory struct {
	Taken     time.Time       `json:"stored"`
	Inventory json.RawMessage `json:"inventory"`
}

// MachineChange is what can be edited of a machine; absent members stay.
type MachineChange struct {
	Name    *string `json:"name,omitempty" doc:"new name"`
	Note    *string `json:"note,omitempty" doc:"text for people"`
	Pool    *string `json:"pool,omitempty" doc:"pool to put it in"`
	Profile *string `json:"hardwareProfile,omitempty" doc:"hardware profile to use"`
	// BootOrder "" goes back to the hardware profile's.
	BootOrder *app.BootPolicy    `json:"bootOrder,omitempty" doc:"boot order it shall have: as-found or network-first; empty: as its hardware profile says, or as its BMC allows"`
	Labels    *map[string]string `json:"labels,omitempty" doc:"all its labels, in place of the old ones; those below bc.dev/ stay"`
	// UUID changes with the mainboard. Empty, it is learned from the next ramdisk.
	UUID *app.UUID `json:"productUuid,omitempty" doc:"SMBIOS system UUID, after a change of the mainboard; empty: learn it from the next ramdisk"`
	// Drivers are all the machine's own bindings, in place of the old ones: kinds that are left out go back to profile and BMC.
	Drivers *map[string]app.Binding `json:"drivers,omitempty" doc:"drivers by kind of this machine alone, in place of the old ones"`
	Force   bool                    `json:"force,omitempty" doc:"accept a driver's own check that fails"`
}

// ConfirmInput names a proposed MAC address that belongs to the machine.
type ConfirmInput struct {
	MAC app.MAC `json:"mac" doc:"the proposed MAC address"`
}

func (a *API) machineRoutes() []Route {
	read, write := app.PermMachinesRead, app.PermMachinesWrite
	return append(a.timelineRoutes(), []Route{
		on(Route{ID: "machines.list", Method: "GET", Path: "/api/v1/machines", Permission: read, Summary: "List machines, ordered by name.",
			Query: []Param{{"text", "string", "part of name, MAC, serial, model or BMC address"}, {"state", "string", "states, separated by commas"},
				{"pool", "string", "pool name"}, {"label", "string", "k=v pairs separated by commas; v may be *"}, paramAfter, paramLimit},
			CLI: CLI{"machine", "list"}}, a.listMachines),
		on(Route{ID: "machines.enroll", Method: "POST", Path: "/api/v1/machines", Permission: write, Status: http.StatusCreated,
			Summary: "Enroll a machine: its BMC is probed first.", CLI: CLI{"machine", "enroll"}, Args: []string{"name"}}, a.enroll),
		on(Route{ID: "machines.test-bmc", Method: "POST", Path: "/api/v1/machines/test-bmc", Permission: write,
			Summary: "Ask a BMC who it is, changing nothing.", CLI: CLI{"machine", "test-bmc"}}, a.testBMC),
		on(Route{ID: "machines.get", Method: "GET", Path: "/api/v1/machines/{id}", Permission: read, Summary: "Show one machine, by id or name.",
			CLI: CLI{"machine", "show"}}, a.getMachine),
		on(Route{ID: "machines.change", Method: "PATCH", Path: "/api/v1/machines/{id}", Permission: write,
			Summary: "Change name, note, pool, hardware profile, boot order, labels or drivers.", CLI: CLI{"machine", "set"}}, a.changeMachine),
		on(Route{ID: "machines.inventory", Method: "GET", Path: "/api/v1/machines/{id}/inventory", Permission: read,
			Summary: "Show what the agent found on a machine.", CLI: CLI{"machine", "inventory"}}, a.inventory),
		on(Route{ID: "machines.set-bmc", Method: "PUT", Path: "/api/v1/machines/{id}/bmc", Permission: write,
			Summary: "Change driver, address, TLS key, login or options of a machine's BMC, or give it one, once it was seen to answer so.", CLI: CLI{"machine", "set-bmc"}}, a.setBMC),
		on(Route{ID: "machines.driver-problems", Method: "GET", Path: "/api/v1/machines/{id}/driver-problems", Permission: read,
			Summary: "List what is wrong with a machine's drivers: bindings that do not resolve, drivers that the site does not have now, checks that failed.",
			CLI:     CLI{"machine", "driver-problems"}}, a.driverProblems),
		on(Route{ID: "machines.query", Method: "POST", Path: "/api/v1/machines/{id}/query", Permission: write,
			Summary: "Ask a machine's BMC by an operation that only looks.", CLI: CLI{"machine", "query"}, Args: []string{"operation"}}, a.query),
		on(Route{ID: "machines.bmc-operations", Method: "GET", Path: "/api/v1/machines/{id}/bmc-operations", Permission: read,
			Summary: "List what was asked of a machine's BMC, newest first.", Query: []Param{{"before", "integer", "next of the page before"}, paramLimit},
			CLI: CLI{"machine", "bmc-log"}}, a.bmcOperations),
		on(Route{ID: "machines.confirm-mac", Method: "POST", Path: "/api/v1/machines/{id}/confirm-mac", Permission: write,
			Summary: "Confirm that a proposed MAC address belongs to the machine.", CLI: CLI{"machine", "confirm-mac"}, Args: []string{"mac"}}, a.confirmMAC),
	}...)
}

func (a *API) listMachines(c *Call, _ none) (app.MachinePage, error) {
	f := app.MachineFilter{Text: c.Query.Get("text"), Pool: c.Query.Get("pool"), After: c.Query.Get("after")}
	var err error
	if f.Limit, err = c.limit(100); err != nil {
		return app.MachinePage{}, err
	}
	if f.States, err = parseStates(c.Query.Get("state")); err != nil {
		return app.MachinePage{}, err
	}
	if f.Labels, err = parseLabels(c.Query.Get("label")); err != nil {
		return app.MachinePage{}, err
	}
	if len(f.Text) > 200 {
		return app.MachinePage{}, app.Invalid("text", "is longer than 200 bytes")
	}
	page, err := a.Machines.ListMachines(c, f)
	if page.Items == nil {
		page.Items = []app.Machine{}
	}
	return page, err
}

// States lists the states in the order of a machine's life.
func States() []app.State {
	return []app.State{app.StateNew, app.StateEnrolled, app.StateCommissioning, app.StateReady, app.StateDeploying, app.StateDeployed,
		app.StateReleasing, app.StateRescue, app.StateISO, app.StateFailed, app.StateRetired}
}

func parseStates(s string) ([]app.State, error) {
	if s == "" {
		return nil, nil
	}
	var out []app.State
	for _, w := range strings.Split(s, ",") {
		if !slices.Contains(States(), app.State(w)) {
			return nil, app.Invalid("state", "is no state of a machine").Do("use %v", States())
		}
		out = append(out, app.State(w))
	}
	return out, nil
}

func parseLabels(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	out := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, app.Invalid("label", "is not of the form key=value").Do("use * as the value to match any")
		}
		out[k] = v
	}
	return out, nil
}

func (a *API) enroll(c *Call, in EnrollInput) (*app.Machine, error) {
	if err := in.normalize(); err != nil {
		return nil, err
	}
	return a.Service.Enroll(c, c.actor(), in)
}

func (a *API) testBMC(c *Call, in BMCInput) (*Card, error) {
	if err := in.normalize("bmc"); err != nil {
		return nil, err
	}
	return a.Service.TestBMC(c, c.actor(), in)
}

func (a *API) getMachine(c *Call, _ none) (*app.Machine, error) {
	return a.Machines.Machine(c, c.Path["id"])
}

func (a *API) inventory(c *Call, _ none) (*Inventory, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	inv, at, err := a.Machines.Inventory(c, m.ID)
	if app.CodeOf(err) == app.NotFound {
		return nil, app.Errorf(app.NotFound, "no-inventory", "%s was never inventoried", m.Name).Do("commission it")
	}
	return &Inventory{Taken: at, Inventory: inv}, err
}

func (a *API) confirmMAC(c *Call, in ConfirmInput) (*app.Machine, error) {
	mac, err := app.ParseMAC(string(in.MAC))
	if err != nil {
		return nil, err
	}
	return a.Service.ConfirmMAC(c, c.actor(), c.Path["id"], mac)
}

func (a *API) changeMachine(c *Call, in MachineChange) (*app.Machine, error) {
	if err := in.validate(c, a.Profiles); err != nil {
		return nil, err
	}
	if err := a.checkUUID(c, in.UUID); err != nil {
		return nil, err
	}
	for range changeTries {
		m, said, err := a.tryChange(c, in)
		switch {
		case errors.Is(err, errOvertaken):
			continue
		case err != nil:
			return nil, err
		}
		return m, a.Bus.Record(c, app.Event{Kind: "machine.changed", MachineID: m.ID, Actor: c.actor(), Message: m.Name + " was edited" + said})
	}
	return nil, app.Errorf(app.Conflict, "machine-busy", "%s is changed by others all the time: its drivers cannot be changed now", c.Path["id"]).Do("try again")
}

// changeTries is how often bindings are made anew when the machine changed while they were made.
const changeTries = 3

// errOvertaken says that the machine is no longer the one that its bindings were made for.
var errOvertaken = errors.New("the machine has changed meanwhile")

// tryChange edits the machine as it is now. Bindings are stored only on the machine they were made for: a workflow that started
// meanwhile keeps its drivers, and another's change is not undone.
func (a *API) tryChange(c *Call, in MachineChange) (m *app.Machine, said string, err error) {
	was, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, "", err
	}
	next := *was
	in.apply(&next)
	if said, err = a.rebind(c, in, was, &next); err != nil {
		return nil, "", err
	}
	m, err = a.Machines.UpdateMachine(c, was.ID, func(m *app.Machine) error {
		if in.rebinds() && m.Version != was.Version {
			return errOvertaken
		}
		if in.UUID != nil && *in.UUID != m.UUID && m.WorkflowID != "" {
			return app.Errorf(app.Conflict, "machine-busy", "%s is busy: its UUID cannot be changed now", m.Name).At("productUuid").Do("wait for its workflow to end, or abort it")
		}
		in.apply(m)
		if in.rebinds() {
			m.Drivers, m.Labels = next.Drivers, next.Labels
		}
		return nil
	})
	return m, said, err
}

// rebinds reports whether the change touches what the machine's bindings are made of.
func (in MachineChange) rebinds() bool {
	return in.Pool != nil || in.Profile != nil || in.Drivers != nil
}

// rebind makes the bindings of a changed machine, and refuses while a workflow uses the old ones. said is for the audit.
func (a *API) rebind(c *Call, in MachineChange, was, next *app.Machine) (said string, err error) {
	if !in.rebinds() || in.Drivers == nil && was.Pool == next.Pool && was.Profile == next.Profile {
		next.Drivers, next.Labels = was.Drivers, withOwn(was.Labels, next.Labels)
		return "", nil
	}
	if was.WorkflowID != "" {
		return "", app.Errorf(app.Conflict, "machine-busy", "%s is busy: its drivers cannot be changed now", was.Name).Do("wait for its workflow to end, or abort it")
	}
	var own map[string]app.Binding
	if in.Drivers != nil {
		own = *in.Drivers
		if own == nil {
			own = map[string]app.Binding{}
		}
	}
	warnings, err := a.Bindings.Bind(c, next, own, in.Force)
	for _, w := range warnings {
		said += "; " + w
	}
	return said, firstProblem(err)
}

// withOwn puts an operator's labels beside those that drivers, ramdisk and BMC advertise.
func withOwn(advertised, own map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range advertised {
		if strings.HasPrefix(k, drivers.LabelPrefix) {
			out[k] = v
		}
	}
	for k, v := range own {
		if !strings.HasPrefix(k, drivers.LabelPrefix) {
			out[k] = v
		}
	}
	return out
}

func (in MachineChange) validate(ctx context.Context, profiles app.ProfileStore) error {
	if in.Name != nil {
		if err := validMachineName(*in.Name); err != nil {
			return err
		}
	}
	if in.Note != nil && len(*in.Note) > maxNote {
		return app.Invalid("note", "is longer than %d bytes", maxNote)
	}
	if in.BootOrder != nil {
		if err := app.ValidBootPolicy("bootOrder", *in.BootOrder); err != nil {
			return err
		}
	}
	if in.Labels != nil {
		if err := validLabels(*in.Labels); err != nil {
			return err
		}
	}
	if in.Drivers != nil {
		if err := app.ValidBindings(*in.Drivers); err != nil {
			return firstProblem(err)
		}
	}
	if in.Pool != nil && *in.Pool != "" {
		if _, err := profiles.Pool(ctx, *in.Pool); err != nil {
			return unknown(err, "pool", *in.Pool)
		}
	}
	if in.Profile != nil && *in.Profile != "" {
		if _, err := profiles.Profile(ctx, *in.Profile); err != nil {
			return unknown(err, "hardwareProfile", *in.Profile)
		}
	}
	return nil
}

// checkUUID brings a new UUID to its stored form, and refuses one of another machine.
func (a *API) checkUUID(c *Call, u *app.UUID) (err error) {
	if u == nil || *u == "" {
		return nil
	}
	if *u, err = app.ParseUUID(string(*u)); err != nil {
		return at(err, "productUuid")
	}
	if *u == "" {
		return app.Invalid("productUuid", "is one that firmware shows when nobody filled it in: it identifies nothing").Do("leave it empty")
	}
	same, err := a.Machines.MachinesByUUID(c, *u)
	if err != nil {
		return err
	}
	for _, m := range same {
		if m.ID != c.Path["id"] && m.Name != c.Path["id"] {
			return app.Errorf(app.Conflict, "uuid-taken", "product UUID %s belongs to machine %s", *u, m.Name).At("productUuid").Do("leave it empty if two boards share it")
		}
	}
	return nil
}

// unknown turns a missing thing that a field names into an error of that field.
func unknown(err error, field, name string) error {
	if app.CodeOf(err) != app.NotFound {
		return err
	}
	return app.Invalid(field, "there is none called %q", name).Do("create it under Profiles & pools first")
}

func (in MachineChange) apply(m *app.Machine) {
	set := func(to *string, from *string) {
		if from != nil {
			*to = *from
		}
	}
	set(&m.Name, in.Name)
	set(&m.Note, in.Note)
	set(&m.Pool, in.Pool)
	set(&m.Profile, in.Profile)
	if in.BootOrder != nil {
		m.BootOrder = *in.BootOrder
	}
	set((*string)(&m.UUID), (*string)(in.UUID))
	if in.Labels != nil {
		m.Labels = withOwn(m.Labels, *in.Labels)
	}
}

// reserved are names that addresses of API and console use for something else.
var reserved = []string{"actions", "batch", "enroll", "test-bmc"}

func validMachineName(name string) error {
	if slices.Contains(reserved, name) {
		return app.Invalid("name", "%q is taken by the console itself", name).Do("choose another")
	}
	return app.ValidName("name", name)
}

func validLabels(m map[string]string) error {
	if len(m) > maxLabels {
		return app.Invalid("labels", "there are %d, the limit is %d", len(m), maxLabels)
	}
	for k, v := range m {
		if strings.HasPrefix(k, "bc.dev/") {
			return app.Invalid("labels", "bc.dev/ is reserved for what drivers advertise").Do("choose another prefix")
		}
		if k == "" || len(k) > 128 || strings.ContainsAny(k, "=, ") {
			return app.Invalid("labels", "a key has 1 to 128 characters without space, comma and equals sign")
		}
		if err := app.ValidLine("labels", v, 256); err != nil {
			return err
		}
	}
	return nil
}
