package health

import (
	"context"
	"fmt"

	"github.com/better-compute/bcd/app"
)

// maxBootOrders are named one by one.
const maxBootOrders = 5

// BootOrders warns of machines whose boot order is not as it should be: their next release may boot the old system.
func BootOrders(store app.BootOrderStore, machines app.MachineStore) Check {
	return func(ctx context.Context) ([]Warning, error) {
		all, err := store.BootOrderProblems(ctx)
		if err != nil {
			return nil, err
		}
		var out []Warning
		for i, b := range all {
			if i == maxBootOrders {
				return append(out, Warning{"boot-order", "warn", fmt.Sprintf("and %d more machines whose boot order is not as it should be", len(all)-i), "open each on the Machines page"}), nil
			}
			name := b.MachineID
			if m, err := machines.Machine(ctx, b.MachineID); err == nil {
				name = m.Name
			}
			out = append(out, Warning{"boot-order", "warn", fmt.Sprintf("the boot order of %s is not as it should be: %s", name, b.Problem.Message), b.Problem.WayOut})
		}
		return out, nil
	}
}
