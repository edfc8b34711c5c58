package console

import (
	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

// tests adds what the commissioning tests of the machine found. It is no error when it has none.
func (q *request) tests(d *views.MachineData) error {
	t, err := ask[*api.Tests](q, "machines.tests", nil)
	if app.CodeOf(err) == app.NotFound {
		return nil
	}
	d.Tests = t
	return err
}

// readCommission takes the tests that were ticked; none means those of the machine's hardware profile.
func readCommission(q *request, _ *app.Machine) (any, error) {
	return api.CommissionOptions{Tests: q.form["test"]}, nil
}
