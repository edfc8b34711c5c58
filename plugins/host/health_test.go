package host

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// A plugin that answers no question about its health is started again; one that says it cannot work is shown as such.
func TestHealth(t *testing.T) {
	b := newBench(t, "sick:sick=alpha@1.0.0").start()
	s := b.await("sick", func(s Status) bool { return s.State == Running && !s.Serving })
	if !strings.Contains(s.Message, "ipmitool is not installed") {
		t.Errorf("it says %q", s.Message)
	}
	b.await("sick", func(Status) bool { return strings.Contains(b.reg.reason("alpha@1.0.0"), "ipmitool is not installed") })
}

// A plugin that hangs, calls and all, is started again.
func TestHungPluginIsStartedAgain(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0").start()
	b.clock.asleep(t, healthEvery)
	failed := make(chan error, 1)
	go func() { _, err := b.call(t.Context(), "alpha@1.0.0", "hang", ""); failed <- err }()
	s := b.await("a", func(s Status) bool { return s.Calls == 1 })
	if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A question may still be answered while the signal goes round the threads, so time goes on until it is noticed.
	s = b.await("a", func(s Status) bool {
		if s.LastErr != "" {
			return true
		}
		b.clock.advance(healthEvery)
		return false
	})
	wantCode(t, <-failed, driver.CodeUnreachable, true)
	if !strings.Contains(s.LastErr, "no longer answers") {
		t.Errorf("it stands at %+v", s)
	}
	b.await("a", func(s Status) bool {
		if s.State == BackOff {
			b.clock.advance(time.Second)
		}
		return s.State == Running && s.Restarts > 0
	})
}
