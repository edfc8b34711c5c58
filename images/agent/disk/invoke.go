package disk

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Argument reads the one argument of a driver's operation: an object, or a list that holds it. Unknown members are refused,
// because an order that is understood in part is no order.
func Argument(cmd agentv1.Command, into any) error {
	raw := bytes.TrimSpace(cmd.Payload)
	var list []json.RawMessage
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil || len(list) != 1 {
			return app.Errorf(app.InvalidInput, "invalid-args", "it takes one argument, an object")
		}
		raw = list[0]
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return app.Errorf(app.InvalidInput, "invalid-args", "the argument cannot be read: %w", err)
	}
	return nil
}

// Ours refuses an order for another machine's disks.
func Ours(cmd agentv1.Command, machine string) error {
	if machine != cmd.MachineID {
		return app.Errorf(app.Forbidden, "command-not-ours", "the order is for the disks of another machine")
	}
	return nil
}

// Deploy is image-stream's deploy.deploy, whose argument is a DeploySpec: it puts the image on the disk by the code of
// agent.write, with its refusals, and first-boot data by that of agent.configure.
func (w *Writer) Deploy(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
	var spec agentv1.DeploySpec
	if err := Argument(cmd, &spec); err != nil {
		return nil, err
	}
	if err := Ours(cmd, spec.Machine); err != nil {
		return nil, err
	}
	out, err := w.Write(ctx, agentv1.Write{Disk: spec.Disk, IndexURL: spec.Image, IndexSHA256: spec.SHA256, RawBytes: spec.RawBytes,
		SectorSize: spec.SectorSize, FSUUIDs: spec.FSUUIDs, WipeOthers: spec.WipeOthers}, progress)
	if err != nil {
		return nil, err
	}
	if len(spec.Seed) > 0 {
		if _, err := w.Configure(ctx, agentv1.Configure{Disk: spec.Disk, Seed: spec.Seed}, progress); err != nil {
			return nil, err
		}
	}
	return agentv1.DeployResult{Bytes: out.BytesVerified, SHA256: spec.SHA256}, nil
}
