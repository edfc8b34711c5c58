package host

import (
	"context"
	"time"
)

// Clock is the time by which plugins are supervised.
type Clock interface {
	Now() time.Time
	// Sleep waits for d or for the end of ctx, whose cause it then returns.
	Sleep(ctx context.Context, d time.Duration) error
}

type systemClock struct{}

// Now is the system's time.
func (systemClock) Now() time.Time { return time.Now() }

// Sleep waits on the system's timer.
func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
