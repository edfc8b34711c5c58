package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/agenttest"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// world runs f in a bubble with a site and a machine that boots from it.
func world(t *testing.T, h map[string]agent.Handler, f func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim)) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		site, pipe := agenttest.NewSite(t), agenttest.NewPipe()
		site.Serve(t, pipe)
		sim := agenttest.NewSim(agenttest.SimConfig{Boot: site.Boot(), State: state, Handlers: h, Dial: pipe.Dial})
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := sim.Crash(); err != nil {
				t.Errorf("agent ended with: %v", err)
			}
		}()
		f(t, site, sim)
	})
}

// gate is a handler that reports, then waits until *open is closed. The channel has to be made inside the bubble.
func gate(open *chan struct{}) agent.Handler {
	return func(ctx context.Context, _ agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		progress(agentv1.ProgressReport{Phase: "writing", Done: 1, Total: 2, Unit: "bytes"})
		select {
		case <-*open:
			return agentv1.WriteResult{BytesWritten: 42}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestCommandRunsAndIsReported(t *testing.T) {
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		site.Send(site.Command("wf:1:inventory#0", agentv1.KindInventory, struct{}{}))
		r := site.Result("wf:1:inventory#0")
		var inv agentv1.Inventory
		if err := json.Unmarshal(r.Result, &inv); err != nil || r.State != "done" || len(inv.Disks) != 1 {
			t.Fatalf("result %+v: %v", r, err)
		}
		h := site.Heard()
		if len(h.Trades) != 1 || h.Trades[0].BootID != "boot-1" || h.Trades[0].Nonce == "" {
			t.Errorf("trades %+v", h.Trades)
		}
	})
}

func TestKnownKeyNeverRunsTwice(t *testing.T) {
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		c := site.Command("wf:1:write#0", agentv1.KindWrite, agentv1.Write{RawBytes: 4096})
		site.Send(c)
		first := site.Result(c.Key)
		site.Send(c) // the same bytes again: replayed, or re-delivered by a site that lost the answer
		site.Await(func(h agenttest.Heard) bool { return len(h.Results) == 2 })
		if again := site.Heard().Results[1]; string(again.Result) != string(first.Result) || again.State != "done" {
			t.Errorf("answered %+v, before %+v", again, first)
		}
		if n := sim.Runs(c.Key); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

func TestRestartedAgentResumesAndReportsTheLostAttempt(t *testing.T) {
	var open chan struct{}
	h := agenttest.DefaultHandlers()
	h[agentv1.KindWrite] = gate(&open)
	world(t, h, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		done, lost := site.Command("wf:1:clock#0", agentv1.KindSetClock, struct{}{}), site.Command("wf:1:write#0", agentv1.KindWrite, struct{}{})
		site.Send(done)
		site.Result(done.Key)
		site.Send(lost)
		site.Await(func(h agenttest.Heard) bool {
			return len(h.Progress) > 0 && h.Progress[len(h.Progress)-1].Key == lost.Key
		})
		if err := sim.Crash(); err != nil {
			t.Fatal(err)
		}
		open = make(chan struct{})
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		r := site.Result(lost.Key)
		if r.State != "failed" || r.Error.Reason != agentv1.ReasonAgentRestarted || r.Error.Code != string(app.Interrupted) {
			t.Fatalf("lost attempt: %+v %+v", r, r.Error)
		}
		site.Await(func(h agenttest.Heard) bool { return len(h.Table) == 2 && h.Table[0].State == "done" })
		if n := len(site.Heard().Trades); n != 1 {
			t.Errorf("%d trades: a restarted agent must resume", n)
		}
		site.Send(lost) // same run: not without the site's word
		site.Await(func(h agenttest.Heard) bool { return len(h.Results) >= 3 })
		if n := sim.Runs(lost.Key); n != 1 {
			t.Fatalf("ran %d times", n)
		}
		lost.Run = 1
		site.Send(lost)
		close(open)
		site.Await(func(h agenttest.Heard) bool { return h.Results[len(h.Results)-1].State == "done" })
		site.Send(lost) // the same order replayed
		site.Await(func(h agenttest.Heard) bool { return len(h.Results) >= 5 })
		if n := sim.Runs(lost.Key); n != 2 {
			t.Errorf("ran %d times", n)
		}
	})
}

func TestSiteAwayForMinutesInMidWrite(t *testing.T) {
	var open chan struct{}
	h := agenttest.DefaultHandlers()
	h[agentv1.KindWrite] = gate(&open)
	world(t, h, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		open = make(chan struct{})
		c := site.Command("wf:1:write#0", agentv1.KindWrite, struct{}{})
		site.Send(c)
		site.Await(func(h agenttest.Heard) bool { return len(h.Progress) == 1 })
		site.Down(true)
		time.Sleep(5 * time.Minute) // of the bubble's clock
		close(open)
		time.Sleep(5 * time.Minute)
		back := time.Now()
		site.Down(false)
		r := site.Result(c.Key)
		if r.State != "done" || sim.Runs(c.Key) != 1 {
			t.Errorf("after the outage: %+v", r)
		}
		if waited := time.Since(back); waited > 6*time.Second {
			t.Errorf("the result came %s after the site was back", waited)
		}
	})
}

func TestProgressAtMostOnceASecond(t *testing.T) {
	h := agenttest.DefaultHandlers()
	h[agentv1.KindWrite] = func(ctx context.Context, _ agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		for i := range 1000 {
			progress(agentv1.ProgressReport{Phase: "writing", Done: int64(i)})
			time.Sleep(10 * time.Millisecond)
		}
		return nil, nil
	}
	world(t, h, func(t *testing.T, site *agenttest.Site, _ *agenttest.Sim) {
		site.Send(site.Command("k", agentv1.KindWrite, nil))
		site.Result("k")
		if n := len(site.Heard().Progress); n < 9 || n > 11 {
			t.Errorf("%d reports in 10 s", n)
		}
	})
}

func TestCancel(t *testing.T) {
	h := agenttest.DefaultHandlers()
	h[agentv1.KindWrite] = gate(new(chan struct{}))
	world(t, h, func(t *testing.T, site *agenttest.Site, _ *agenttest.Sim) {
		site.Send(site.Command("k", agentv1.KindWrite, nil))
		site.Await(func(h agenttest.Heard) bool { return len(h.Progress) == 1 })
		site.Cancel("k")
		if r := site.Result("k"); r.State != "failed" || r.Error.Reason != "attempt-cancelled" {
			t.Errorf("%+v", r.Error)
		}
	})
}

func TestHandlerErrorsReachTheSite(t *testing.T) {
	h := agenttest.DefaultHandlers()
	h[agentv1.KindWrite] = func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
		return nil, app.Errorf(app.Conflict, "disk-too-small", "the disk is too small").Do("choose another")
	}
	h[agentv1.KindVerify] = func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) { panic("boom") }
	h[agentv1.KindWipe] = func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
		return nil, errors.New("plain")
	}
	h[agentv1.KindInventory] = func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
		return strings.Repeat("x", agentv1.MaxBody), nil
	}
	want := map[string]string{
		agentv1.KindWrite: "disk-too-small", agentv1.KindVerify: "handler-panic", agentv1.KindWipe: "agent-internal",
		agentv1.KindInventory: "result-too-large", "agent.unheard-of": "unknown-kind",
	}
	world(t, h, func(t *testing.T, site *agenttest.Site, _ *agenttest.Sim) {
		for kind, reason := range want {
			site.Send(site.Command(kind, kind, nil))
			if r := site.Result(kind); r.State != "failed" || r.Error.Reason != reason {
				t.Errorf("%s: %+v", kind, r.Error)
			}
		}
	})
}

func TestCommandsThatChangeTheMachineTakeTurns(t *testing.T) {
	var open chan struct{}
	h := agenttest.DefaultHandlers()
	h[agentv1.KindWrite] = gate(&open)
	world(t, h, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		open = make(chan struct{})
		site.Send(site.Command("write", agentv1.KindWrite, nil))
		site.Await(func(h agenttest.Heard) bool { return len(h.Progress) == 1 })
		site.Send(site.Command("wipe", agentv1.KindWipe, agentv1.Wipe{}))
		site.Send(site.Command("look", agentv1.KindInventory, nil))
		site.Result("look")
		if sim.Runs("wipe") != 0 {
			t.Error("the wipe ran beside the write")
		}
		close(open)
		site.Result("wipe")
	})
}

func TestRefusals(t *testing.T) {
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		late := site.Command("late", agentv1.KindReboot, nil)
		late.NotAfter = time.Now().Add(-time.Second)
		other := site.Command("other", agentv1.KindReboot, nil)
		other.MachineID = "machine-2"
		forged := site.Sign(site.Command("forged", agentv1.KindReboot, nil))
		forged.Signature[0] ^= 1
		site.SendRaw(forged)
		site.Send(other)
		site.Send(late)
		if r := site.Result("late"); r.Error.Reason != "command-expired" {
			t.Errorf("%+v", r.Error)
		}
		site.Send(site.Command("good", agentv1.KindReboot, nil))
		site.Result("good")
		if n := sim.Runs("late") + sim.Runs("other") + sim.Runs("forged"); n != 0 {
			t.Errorf("%d refused commands ran", n)
		}
		for _, r := range site.Heard().Results {
			if r.Key == "other" || r.Key == "forged" {
				t.Errorf("a command that is not ours was answered: %+v", r)
			}
		}
	})
}

func TestExpiredCommandThatRanIsAnsweredWithItsResult(t *testing.T) {
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		c := site.Command("k", agentv1.KindWrite, agentv1.Write{RawBytes: 4096})
		c.NotAfter = time.Now().Add(time.Minute)
		site.Send(c)
		site.Result("k")
		time.Sleep(time.Hour)
		site.Send(c)
		site.Await(func(h agenttest.Heard) bool { return len(h.Results) == 2 })
		if r := site.Heard().Results[1]; r.State != "done" || sim.Runs("k") != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestAnswerBeforeReboot(t *testing.T) {
	var site *agenttest.Site
	var acked chan bool
	h := agenttest.DefaultHandlers()
	h[agentv1.KindReboot] = func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
		return agent.Then{Result: struct{}{}, Do: func(context.Context) error {
			acked <- len(site.Heard().Results) == 1
			return nil
		}}, nil
	}
	world(t, h, func(t *testing.T, s *agenttest.Site, sim *agenttest.Sim) {
		site, acked = s, make(chan bool, 1)
		s.Send(s.Command("reboot", agentv1.KindReboot, nil))
		if !<-acked {
			t.Error("the reboot came before its answer")
		}
		if sim.Runs("reboot") != 1 {
			t.Error("not once")
		}
	})
}
