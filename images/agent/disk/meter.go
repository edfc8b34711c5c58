package disk

import (
	"sync"
	"sync/atomic"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// meter reports bytes done once a second, and at the end.
type meter struct {
	report func()
	quit   chan struct{}
	wg     sync.WaitGroup
}

// newMeter reports done of total bytes, and what note says; note may be nil.
func newMeter(tell func(agentv1.ProgressReport), phase string, total int64, done *atomic.Int64, note func() string) *meter {
	m := &meter{quit: make(chan struct{})}
	m.report = func() {
		p := agentv1.ProgressReport{Phase: phase, Done: min(done.Load(), total), Total: total, Unit: "bytes"}
		if note != nil {
			p.Message = note()
		}
		tell(p)
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

// stop ends the reports with a last one.
func (m *meter) stop() {
	close(m.quit)
	m.wg.Wait()
	m.report()
}
