package host

import (
	"context"
	"fmt"
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

// within gives a context that ends once d has passed by the host's clock, with a cause that says so. What it holds is free
// after done, which must be called.
func (h *Host) within(ctx context.Context, d time.Duration) (limited context.Context, done func()) {
	limited, cancel := context.WithCancelCause(ctx)
	slept := make(chan struct{})
	go func() {
		defer close(slept)
		if h.clock.Sleep(limited, d) == nil {
			cancel(fmt.Errorf("%s have passed", d))
		}
	}()
	return limited, func() { cancel(nil); <-slept }
}
