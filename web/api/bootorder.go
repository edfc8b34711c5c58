package api

import (
	"github.com/better-compute/bcd/app"
)

// bootReadings is how much of a boot order's history is shown.
const bootReadings = 20

// BootOrderReport is a machine's boot order, and how it came to be so.
type BootOrderReport struct {
	app.BootOrder
	Words   []string          `json:"words"`   // the order that counts, as people read it
	History []app.BootReading `json:"history"` // newest first
}

func (a *API) bootOrderRoutes() []Route {
	return []Route{
		on(Route{ID: "machines.boot-order", Method: "GET", Path: "/api/v1/machines/{id}/boot-order", Permission: app.PermMachinesRead,
			Summary: "Show the boot order of a machine, who keeps it, and who changed it last.", CLI: CLI{"machine", "boot-order"}}, a.bootOrder),
	}
}

func (a *API) bootOrder(c *Call, _ none) (*BootOrderReport, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	b, err := a.BootOrders.BootOrder(c, m.ID)
	if app.CodeOf(err) == app.NotFound {
		return nil, app.Errorf(app.NotFound, "no-boot-order", "the boot order of %s was never read", m.Name).Do("commission it; of a deployed machine it is read at its next deploy or release")
	}
	if err != nil {
		return nil, err
	}
	history, err := a.BootOrders.BootReadings(c, m.ID, bootReadings)
	if err != nil {
		return nil, err
	}
	if history == nil {
		history = []app.BootReading{}
	}
	return &BootOrderReport{BootOrder: *b, Words: b.Words(b.View()), History: history}, nil
}
