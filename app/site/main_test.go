package site_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/app/workflow"
)

// childEnv tells this test binary to be an appliance; its value is a childConfig in JSON.
const childEnv = "BCD_SITE_TEST_CHILD"

// childConfig is what an appliance in a process of its own is told.
type childConfig struct {
	Dir     string
	Console string // addresses to listen on
	Agent   string
	Boot    string
	KillAt  string        // an instant of killedStore at which the process stands still, for its parent to kill it; "" never
	Log     string        // file; "" discards
	Plugins string        // directory; "" none
	Ramdisk string        // directory; "" none
	Late    time.Duration // an agent is, after such a silence; 0: the built-in one
	Silence time.Duration // of an installed system, until its machine is reset; 0: the built-in one

	Patience time.Duration // of the appliance with BMCs and plugins; 0: the tests'
}

// news is one line on an appliance's standard output.
type news struct {
	What  string `json:"what"`
	State string `json:"state,omitempty"` // of a workflow that ended or waits for a person
	URL   string `json:"url,omitempty"`
	SPKI  string `json:"spki,omitempty"`
	Code  string `json:"code,omitempty"` // that makes the first administrator
}

// What an appliance tells its parent.
const (
	newsReady = "ready" // it serves
	newsAt    = "at"    // it stands still at KillAt
	newsOver  = "over"  // a workflow ended, or waits for a person
)

func TestMain(m *testing.M) {
	if player() {
		return
	}
	if config := os.Getenv(childEnv); config != "" {
		if err := appliance(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	// The cases wait for disks and clocks too, so two share a processor. More, of which each has two processes, would starve
	// each other.
	_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	code := m.Run()
	removeTemplate()
	os.Exit(code)
}

// appliance runs a site until it is told to stop, or its parent is gone.
func appliance(config string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }() // it ends with the parent
	log := slog.New(slog.DiscardHandler)
	if c.Log != "" {
		f, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		log = slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var f site.File
	f.Site.Name, f.Site.DataDir = "test", c.Dir
	f.Listen.Console, f.Listen.Agent, f.Listen.Boot = c.Console, c.Agent, c.Boot
	f.Plugins.Dir, f.Netboot.Ramdisk = c.Plugins, c.Ramdisk
	out := &teller{w: os.Stdout}
	s, err := site.New(ctx, site.Config{File: f, Version: "test", Log: log, Silence: c.Silence, AgentLate: c.Late, Patience: cmp.Or(c.Patience, patience),
		Journal: func(inner workflow.Store) workflow.Store { return killedStore{inner, c.KillAt, out} }})
	if err != nil {
		return err
	}
	return s.RunReady(ctx, func() { out.tell(news{What: newsReady, URL: s.URL(), SPKI: s.SPKI(), Code: s.SetupCode()}) })
}

// teller writes news; mu protects w.
type teller struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *teller) tell(n news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = json.NewEncoder(t.w).Encode(n) // a parent that is gone ends this process by its standard input
}

// killedStore is the engine's store, which stands still for ever at an instant: "before WHAT STEP" or "after WHAT STEP",
// where WHAT is the journal's word of a write ("intent", "deliver", "result", "end"). The parent then kills the process:
// nothing after the instant can have happened.
type killedStore struct {
	workflow.Store
	at  string
	out *teller
}

func (s killedStore) reach(instant string) {
	if instant == s.at {
		s.out.tell(news{What: newsAt})
		select {}
	}
}

func (s killedStore) around(what string, f func() error) error {
	s.reach("before " + what)
	err := f()
	if err == nil {
		s.reach("after " + what)
	}
	return err
}

// CreateWorkflow passes "start VERB".
func (s killedStore) CreateWorkflow(ctx context.Context, w *workflow.Workflow, change func(*app.Machine) error) error {
	return s.around("start "+w.Verb, func() error { return s.Store.CreateWorkflow(ctx, w, change) })
}

// SaveStep passes the instants of the first line of the journal.
func (s killedStore) SaveStep(ctx context.Context, w *workflow.Workflow, step int, entries ...workflow.Entry) error {
	if len(entries) == 0 {
		return s.Store.SaveStep(ctx, w, step, entries...)
	}
	err := s.around(entries[0].What+" "+entries[0].StepID, func() error { return s.Store.SaveStep(ctx, w, step, entries...) })
	if err == nil && w.State == workflow.Interrupted {
		s.out.tell(news{What: newsOver, State: string(w.State)})
	}
	return err
}

// EndWorkflow passes "end VERB".
func (s killedStore) EndWorkflow(ctx context.Context, w *workflow.Workflow, change func(*app.Machine) error, entries ...workflow.Entry) error {
	err := s.around("end "+w.Verb, func() error { return s.Store.EndWorkflow(ctx, w, change, entries...) })
	if err == nil {
		s.out.tell(news{What: newsOver, State: string(w.State)})
	}
	return err
}

// oneLine is for messages.
func oneLine(b []byte) string { return strings.Join(strings.Fields(string(b)), " ") }
