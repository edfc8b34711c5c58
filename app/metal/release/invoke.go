package release

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// operation is what image-stream serves of this package's work to steps of hardware profiles: wiping the disks that deploys
// of the machine wrote. The verb does the rest of a release, and writes the certificate.
const operation = "deploy.tearDown"

func readAsked(raw json.RawMessage) (o driver.TearDownOptions, err error) {
	if len(raw) == 0 {
		return o, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, app.Errorf(app.InvalidInput, driver.CodeInvalidArgs, "the argument of %s cannot be read: %w", operation, err).At(operation).Do("write with: {wipe: secure}")
	}
	return o, nil
}

// planStep checks the way of wiping.
func (v *Verbs) planStep(_ context.Context, _ *app.Machine, with json.RawMessage) (any, error) {
	o, err := readAsked(with)
	if err != nil {
		return nil, err
	}
	switch o.Wipe {
	case "", "discard", "overwrite", "secure":
		return o, nil
	}
	return nil, app.Invalid(operation, "%.40q is no way to wipe a disk", o.Wipe).Do("use secure, discard or overwrite, or nothing to wipe nothing")
}

// deliverStep makes the agent's order of the disks that deploys of the machine wrote.
func (v *Verbs) deliverStep(ctx context.Context, c workflow.Command, planned json.RawMessage) (any, error) {
	o, err := readAsked(planned)
	if err != nil {
		return nil, err
	}
	m, err := v.p.Machines.Machine(ctx, c.MachineID)
	if err != nil {
		return nil, err
	}
	out := agentv1.TearDownSpec{Machine: m.ID, Wipe: o.Wipe}
	if o.Wipe == "" {
		return out, nil
	}
	for _, d := range m.OwnDisks {
		if err := metal.JustWritten(m, c, d.Serial, d.WWN, d.Name); err != nil {
			return nil, err
		}
	}
	out.Disks, err = v.targets(ctx, m, Options{})
	return out, err
}
