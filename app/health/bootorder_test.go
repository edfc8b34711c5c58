package health

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

type orders struct {
	app.BootOrderStore
	list []app.BootOrder
}

func (o orders) BootOrderProblems(context.Context) ([]app.BootOrder, error) { return o.list, nil }

type anyMachine struct{ app.MachineStore }

func (anyMachine) Machine(_ context.Context, id string) (*app.Machine, error) {
	return &app.Machine{ID: id, Name: "node-" + id}, nil
}

func TestBootOrdersAreNamed(t *testing.T) {
	var o orders
	if w, err := BootOrders(o, anyMachine{})(t.Context()); err != nil || len(w) != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	for i := range 9 {
		o.list = append(o.list, app.BootOrder{MachineID: fmt.Sprint(i), Problem: app.Errorf(app.Conflict, app.ReasonNVRAMFull, "no room").Do("reset it")})
	}
	w, err := BootOrders(o, anyMachine{})(t.Context())
	if err != nil || len(w) != 6 || !strings.Contains(w[0].Message, "node-0") || w[0].WayOut != "reset it" || !strings.Contains(w[5].Message, "4 more") {
		t.Errorf("%+v, %v", w, err)
	}
}
