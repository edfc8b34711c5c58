package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/sandbox"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// childEnv tells this test binary to be an appliance; its value is a childConfig in JSON.
const childEnv = "BCD_LAB_TEST_CHILD"

// childConfig is what an appliance in a process of its own is told.
type childConfig struct {
	Data      string // directory
	Console   string // address to listen on, in the host's namespace
	Namespace string // for everything that machines reach
	Ramdisk   string // directory of a built ramdisk
	Log       string // file, appended to
}

// childReady is the one line that an appliance prints, once it serves.
type childReady struct{ URL, SPKI, Code string }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] { // what the appliance starts of its own executable
		case sandbox.ShimCommand:
			os.Exit(sandbox.RunShim(os.Args[2:]))
		case ipmiCommand:
			d := ipmi.New(ipmi.Config{})
			bcx.Main(bcx.Options{PluginVersion: ipmi.Version, Health: d.Health}, d.Definition())
		}
	}
	if config := os.Getenv(childEnv); config != "" {
		if err := beAppliance(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beAppliance runs the lab's appliance until it is told to stop, or its parent is gone.
func beAppliance(config string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }() // it ends with the parent
	f, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := Program{Ramdisk: c.Ramdisk, Version: "test"}.Start(ctx, Appliance{
		DataDir: c.Data, Console: c.Console, Network: &Network{cfg: NetworkConfig{Name: c.Namespace}},
		Log: slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(childReady{s.URL(), s.SPKI(), s.SetupCode()}); err != nil {
		return err
	}
	return s.Wait()
}

// mortal is an appliance in a process of its own, which can be killed and started again on the same data.
type mortal struct {
	t     *testing.T
	cfg   childConfig
	cmd   *exec.Cmd // nil while none runs
	stdin io.Closer
	errs  bytes.Buffer
	ready childReady
}

// newMortal prepares an appliance for the rack's network. Nothing runs yet.
func newMortal(t *testing.T, n *Network, ramdisk, log string) *mortal {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a port that stays the same over its lives
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := &mortal{t: t, cfg: childConfig{Data: t.TempDir(), Console: l.Addr().String(), Namespace: n.Name(), Ramdisk: ramdisk, Log: log}}
	t.Cleanup(m.stop)
	return m
}

// start runs the appliance and returns once it serves.
func (m *mortal) start() {
	m.t.Helper()
	raw, err := json.Marshal(m.cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.errs.Reset()
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env, m.cmd.Stderr = append(os.Environ(), childEnv+"="+string(raw)), &m.errs
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		m.stdin, err = m.cmd.StdinPipe()
	}
	if err == nil {
		err = child.Start(m.cmd)
	}
	if err != nil {
		m.cmd = nil
		m.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m.ready)
	}
	if err != nil {
		m.kill()
		m.t.Fatalf("the appliance never served: %v\n%s", err, m.errs.String())
	}
}

// kill ends the process as a power cut does.
func (m *mortal) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// stop ends the process, if one runs, as its operator does.
func (m *mortal) stop() {
	if m.cmd == nil {
		return
	}
	_ = m.stdin.Close()
	if err := m.cmd.Wait(); err != nil {
		m.t.Errorf("stopping the appliance: %v\n%s", err, m.errs.String())
	}
	m.cmd = nil
}

// bench is one machine on a network of its own, with an appliance that can be killed.
type bench struct {
	*mortal
	rack  *Rack
	work  string
	mu    sync.Mutex // protects lines
	lines []string   // what the machine's console printed
}

// newBench builds it from what the environment names, or leaves the test out.
func newBench(t *testing.T, name string) *bench {
	t.Helper()
	work, ramdisk := os.Getenv("BCD_LAB_WORK"), os.Getenv("BCD_LAB_RAMDISK")
	if work == "" || ramdisk == "" {
		t.Skip("left out: it takes minutes; set BCD_LAB_WORK to a folder and BCD_LAB_RAMDISK to a built ramdisk to run it as root")
	}
	b := &bench{work: work}
	dir := t.TempDir()
	var err error
	b.rack, err = NewRack(RackConfig{
		Dir: dir, Network: NetworkConfig{Name: name}, Machines: []MachineSpec{{Name: "node-1", Firmware: app.FirmwareBIOS}},
		OnLine: func(_ string, l virtual.Line) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lines = append(b.lines, l.Text)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.rack.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	racked := make(chan error, 1)
	go func() { racked <- b.rack.Run(ctx) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of the machine's console:\n%s\nand of the appliance's log:\n%s", b.rack.Tail("node-1", 40), b.logged())
		}
		cancel()
		if err := <-racked; err != nil {
			t.Error(err)
		}
	})
	b.mortal = newMortal(t, b.rack.Network, ramdisk, filepath.Join(dir, "appliance.log"))
	return b
}

// logged is the end of the appliance's log, if there is one yet.
func (b *bench) logged() string {
	if b.mortal == nil {
		return ""
	}
	raw, err := os.ReadFile(b.cfg.Log)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-8<<10):])
}

// printed counts the lines of the machine's console that hold all of the words.
func (b *bench) printed(words ...string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, l := range b.lines {
		all := true
		for _, w := range words {
			all = all && strings.Contains(l, w)
		}
		if all {
			n++
		}
	}
	return n
}

// wroteOnce checks that the image of the machine's only deploy was written whole, and once, though the appliance was killed
// in the middle: by the journal, by what the agent reported, and by what the machine's console shows of the agent's work.
func (b *bench) wroteOnce(c *Client) {
	t := b.t
	t.Helper()
	get := func(path string, out any) {
		t.Helper()
		if err := c.Call(t.Context(), http.MethodGet, path, nil, out); err != nil {
			t.Fatal(err)
		}
	}
	var flows api.List[workflow.Workflow]
	get("/api/v1/workflows?machine=node-1&verb=deploy", &flows)
	if len(flows.Items) != 1 || flows.Items[0].State != workflow.Done {
		t.Fatalf("the deploys are %+v", flows.Items)
	}
	w := flows.Items[0]
	var journal api.List[workflow.Entry]
	get("/api/v1/workflows/"+w.ID+"/journal", &journal)
	count := map[string]int{}
	for _, e := range journal.Items {
		if e.StepID == "write" {
			t.Logf("%s write#%d %s %.200s", e.Time.Format(time.TimeOnly), e.Attempt, e.What, e.Data)
			count[e.What]++
		}
		if e.Attempt != 0 {
			t.Errorf("%s has an attempt %d", e.StepID, e.Attempt)
		}
	}
	if count["intent"] != 1 || count["result"] != 1 || count["error"]+count["interrupted"] != 0 {
		t.Errorf("the journal of the write: %v", count)
	}
	key := "wf:" + w.ID + ":write#0"
	if n := b.printed("starting", key); n != 1 {
		t.Errorf("the agent started %s %d times", key, n)
	}
	var img app.Image
	get("/api/v1/images/"+ImageName, &img)
	var r agentv1.WriteResult
	for _, s := range w.Steps {
		if s.ID == "write" {
			if err := json.Unmarshal(s.Result, &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r.BytesWritten+r.BytesZeroed != img.RawBytes || r.BytesVerified < img.UsedBytes {
		t.Errorf("%d written and %d zeroed of %d bytes, %d read back", r.BytesWritten, r.BytesZeroed, img.RawBytes, r.BytesVerified)
	}
}
