package console

import (
	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

// bootOrder adds what is known of the machine's boot order. It is no error when it was never read.
func (q *request) bootOrder(d *views.MachineData) error {
	b, err := ask[*api.BootOrderReport](q, "machines.boot-order", nil)
	if app.CodeOf(err) == app.NotFound {
		return nil
	}
	d.BootOrder = b
	return err
}
