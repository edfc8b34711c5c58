package wipe

import (
	"context"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// TearDown is image-stream's deploy.tearDown, whose argument is a TearDownSpec: it wipes the disks by the code of agent.wipe,
// and fails unless every one of them is proven erased. Its result is {}.
func (w *Wiper) TearDown(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
	var spec agentv1.TearDownSpec
	if err := disk.Argument(cmd, &spec); err != nil {
		return nil, err
	}
	if err := disk.Ours(cmd, spec.Machine); err != nil {
		return nil, err
	}
	if spec.Wipe == "" || len(spec.Disks) == 0 {
		return struct{}{}, nil
	}
	out, err := w.Wipe(ctx, agentv1.Wipe{Disks: spec.Disks, Method: spec.Wipe}, progress)
	if err != nil {
		return nil, err
	}
	var not []string
	for _, d := range out.Disks {
		if !d.Erased {
			not = append(not, d.Disk.Name+" (serial "+d.Disk.Serial+"): "+d.Note)
		}
	}
	if len(not) > 0 {
		return nil, app.Errorf(app.Conflict, "not-erased", "NOT erased: %s", strings.Join(not, "; ")).Do("retry, or take the disk out and destroy it")
	}
	return struct{}{}, nil
}
