package disk

import (
	"context"
	"errors"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func (w *Writer) Configure(ctx context.Context, order agentv1.Configure, progress func(agentv1.ProgressReport)) error {
	return errors.New("x")
}

func (w *Writer) mountNode(disk string, p app.Partition) (string, func() error, error) {
	return "", nil, errors.New("x")
}
