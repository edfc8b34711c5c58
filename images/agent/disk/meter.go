package disk

import (
	"sync"
	"sync/atomic"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// meter reports bytes done once a second, and at the end.
type meter struct {
	done   atomic.Int64
	report func()
	quit   chan struct{}
	wg     sync.WaitGroup
}

func newMeter(tell func(agentv1.ProgressReport), phase string, total int64) *meter {
	m := &meter{quit: make(chan struct{})}
	m.report = func() {
		tell(agentv1.ProgressReport{Phase: phase, Done: min(m.done.Load(), total), Total: total, Unit: "bytes"})
	}
	m.report()
	m.wg.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				m.report()
			case <-m.quit:
				return
			}
		}
	})
	return m
}

func (m *meter) add(n int64) { m.done.Add(n) }

// stop ends the reports with a last one.
func (m *meter) stop() {
	close(m.quit)
	m.wg.Wait()
	m.report()
}
