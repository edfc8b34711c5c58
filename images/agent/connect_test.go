package agent_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/agenttest"
)

func TestByeEndsTheSessionForGood(t *testing.T) {
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		site.Await(func(h agenttest.Heard) bool { return h.Polls == 1 })
		site.Bye()
		synctest.Wait()
		polls := site.Heard().Polls
		if err := sim.Crash(); err != nil {
			t.Fatal(err)
		}
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if h := site.Heard(); h.Polls != polls || len(h.Trades) != 1 {
			t.Errorf("after Bye: %d polls (%d before), %d trades", h.Polls, polls, len(h.Trades))
		}
	})
}

func TestLogLinesReachTheSiteBounded(t *testing.T) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		site, pipe := agenttest.NewSite(t), agenttest.NewPipe()
		site.Serve(t, pipe)
		lines := agent.NewLines()
		log := slog.New(lines.Handler(slog.DiscardHandler))
		for i := range 1500 {
			log.Info("line", "n", i)
		}
		a, err := agent.New(agent.Config{
			Boot: site.Boot(), Handlers: agenttest.DefaultHandlers(), State: state, Log: log, Lines: lines, Dial: pipe.Dial,
			Host: func() agent.Host { return agent.Host{BootID: "boot-1"} },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		site.Await(func(h agenttest.Heard) bool { return len(h.Lines) > 1000 })
		got := site.Heard().Lines
		if !strings.Contains(got[0], "older log lines were dropped") || !strings.Contains(strings.Join(got, "\n"), "n=1499") {
			t.Errorf("first %q, last %q", got[0], got[len(got)-1])
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestOpenStateFileIsRefused(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "session.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		site, pipe := agenttest.NewSite(t), agenttest.NewPipe()
		site.Serve(t, pipe)
		sim := agenttest.NewSim(agenttest.SimConfig{Boot: site.Boot(), State: state, Dial: pipe.Dial})
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		err := sim.Crash()
		if e, ok := app.AsError(err); !ok || e.Reason != "state-file-open" {
			t.Errorf("got %v", err)
		}
	})
}

func TestLostAnswerOfTheTradeIsNoSecondTrade(t *testing.T) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		site, pipe := agenttest.NewSite(t), agenttest.NewPipe()
		site.Serve(t, pipe)
		site.LoseAnswer()
		sim := agenttest.NewSim(agenttest.SimConfig{Boot: site.Boot(), State: state, Dial: pipe.Dial})
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sim.Crash() }()
		site.Await(func(h agenttest.Heard) bool { return h.Polls == 1 })
		if h := site.Heard(); len(h.Trades) != 2 || h.Trades[0].Nonce != h.Trades[1].Nonce {
			t.Errorf("trades %+v", h.Trades)
		}
	})
}

func TestSpentTokenIsNotOfferedAgain(t *testing.T) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		site, pipe := agenttest.NewSite(t), agenttest.NewPipe()
		site.Serve(t, pipe)
		data := site.Boot()
		data.Token = "token-of-another-site"
		sim := agenttest.NewSim(agenttest.SimConfig{Boot: data, State: state, Dial: pipe.Dial})
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := sim.Crash(); err != nil {
			t.Error(err)
		}
		if n := len(site.Heard().Trades); n != 1 {
			t.Errorf("offered %d times", n)
		}
	})
}

func TestUnknownMachineSendsItsInventoryAndRests(t *testing.T) {
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		site, pipe := agenttest.NewSite(t), agenttest.NewPipe()
		site.Serve(t, pipe)
		data := site.Boot()
		data.MachineID, data.WorkflowID = "", ""
		sim := agenttest.NewSim(agenttest.SimConfig{Boot: data, State: state, Dial: pipe.Dial})
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := sim.Crash(); err != nil {
			t.Error(err)
		}
		h := site.Heard()
		if len(h.Trades) != 1 || h.Trades[0].Discovery == nil || len(h.Trades[0].Discovery.Disks) != 1 || h.Polls != 0 {
			t.Errorf("heard %+v", h)
		}
	})
}
