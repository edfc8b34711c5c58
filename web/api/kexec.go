package api

import (
	"slices"

	"github.com/better-compute/bcd/app"
)

// KexecReport is how kexec went on machines of one model.
type KexecReport struct {
	app.KexecMemory
	Images []app.KexecMemory `json:"images"` // by profile and image
	Trials []app.KexecTrial  `json:"trials"` // newest first
}

func (a *API) kexecRoutes() []Route {
	const path = "/api/v1/machines/{id}/kexec"
	return []Route{
		on(Route{ID: "machines.kexec", Method: "GET", Path: path, Permission: app.PermMachinesRead,
			Summary: "Show how kexec went on machines of the same model, which decides how the next deploy starts its system.", CLI: CLI{"machine", "kexec"}}, a.kexec),
		on(Route{ID: "machines.forget-kexec", Method: "DELETE", Path: path, Permission: app.PermMachinesWrite,
			Summary: "Forget how kexec went on machines of the same model: after new firmware, say.", CLI: CLI{"machine", "forget-kexec"}}, a.forgetKexec),
	}
}

func (a *API) kexec(c *Call, _ none) (*KexecReport, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	name := app.KexecMake(m)
	trials, err := a.Kexec.ListKexecTrials(c, name)
	if err != nil {
		return nil, err
	}
	r := &KexecReport{KexecMemory: app.RecallKexec(name, m.Profile, "", trials), Images: []app.KexecMemory{}, Trials: append([]app.KexecTrial{}, trials...)}
	for _, t := range trials {
		if !slices.ContainsFunc(r.Images, func(k app.KexecMemory) bool { return k.Image == t.Image && k.Profile == t.Profile }) {
			r.Images = append(r.Images, app.RecallKexec(name, t.Profile, t.Image, trials))
		}
	}
	return r, nil
}

// forgetKexec makes kexec unknown again on a model, and not proven on the machine that was named.
func (a *API) forgetKexec(c *Call, _ none) (none, error) {
	m, err := a.Machines.UpdateMachine(c, c.Path["id"], func(m *app.Machine) error { m.KexecOK = false; return nil })
	if err != nil {
		return none{}, err
	}
	name := app.KexecMake(m)
	if _, err = a.Kexec.ForgetKexecTrials(c, name); err == nil {
		a.Bus.Emit(app.Event{Time: a.Now().UTC(), Kind: "kexec.forgotten", Level: "info", MachineID: m.ID, Actor: c.actor(), Message: "how kexec went on " + name + " was forgotten"})
	}
	return none{}, err
}
