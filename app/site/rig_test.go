package site_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/problem"
)

// patience bounds every wait for an appliance. It is far longer than any takes: it is here to name what hangs.
const patience = 5 * time.Minute

// rig is one appliance over its processes: its directory, its addresses, and what calls it.
type rig struct {
	t     *testing.T
	dir   string
	cfg   childConfig
	token string
	last  *process // the one that was started last; nil when it was reaped

	mu      sync.Mutex    // protects what follows
	proc    *process      // the one that serves; nil while none does
	changed chan struct{} // closed and replaced when proc changes
	over    bool          // no process will follow
}

// process is one life of an appliance.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	news  chan news // closed at its end
	kept  []news    // came while another kind was awaited
	errs  bytes.Buffer
	ready news
	http  *http.Client
}

// ports counts those that rigs were given.
var ports atomic.Int32

// newRig makes a rig on a directory. Nothing runs yet.
func newRig(t *testing.T, dir string) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, changed: make(chan struct{})}
	ports := freePorts(t, 3)
	r.cfg = childConfig{Dir: dir, Console: ports[0], Agent: ports[1], Boot: ports[2]}
	if os.Getenv("BCD_SITE_TEST_LOG") != "" {
		r.cfg.Log = filepath.Join(os.Getenv("BCD_SITE_TEST_LOG"), filepath.Base(t.Name())+".log")
	}
	t.Cleanup(r.kill)
	t.Cleanup(r.end)
	return r
}

// freePorts gives addresses that nobody else wants, now or later: of a loopback address that is this process's alone, each
// port once, and none of those that the kernel gives to whoever asks for any.
func freePorts(t *testing.T, n int) (out []string) {
	t.Helper()
	pid := os.Getpid() // of at most 22 bits
	for range n {
		port := 9999 + ports.Add(1)
		if port >= 32768 {
			t.Fatal("too many rigs for one process")
		}
		out = append(out, fmt.Sprintf("127.%d.%d.%d:%d", 64+pid>>16, pid>>8&0xff, pid&0xff, port))
	}
	return out
}

// start runs the appliance and returns once it serves.
func (r *rig) start(killAt string) {
	r.t.Helper()
	cfg := r.cfg
	cfg.KillAt = killAt
	raw, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0]), news: make(chan news, 64)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(p.news)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n news
			if json.Unmarshal(lines.Bytes(), &n) == nil {
				p.news <- n
			}
		}
	}()
	r.last = p
	p.ready = r.await(newsReady)
	p.http = client(p.ready.SPKI)
	r.set(p)
}

// await waits for one kind of news of the process.
func (r *rig) await(what string) news {
	r.t.Helper()
	for i, n := range r.last.kept {
		if n.What == what {
			r.last.kept = slices.Delete(r.last.kept, i, i+1)
			return n
		}
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case n, ok := <-r.last.news:
			if !ok {
				err := r.last.cmd.Wait()
				r.t.Fatalf("waiting for %q: the appliance ended by itself: %v\n%s", what, err, r.last.errs.String())
			}
			if n.What == what {
				return n
			}
			r.last.kept = append(r.last.kept, n) // a workflow may be over before the appliance says that it serves
		case <-late.C:
			r.t.Fatalf("waiting for %q in vain:\n%s", what, r.story())
		}
	}
}

func (r *rig) set(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc = p
	close(r.changed)
	r.changed = make(chan struct{})
}

// kill ends the process as a power cut does; it is no matter when none runs.
func (r *rig) kill() {
	if p := r.last; p != nil {
		_ = p.cmd.Process.Kill()
		r.reap(p)
	}
}

// stop ends the process as its operator does.
func (r *rig) stop() {
	r.t.Helper()
	_ = r.last.stdin.Close()
	if err := r.reap(r.last); err != nil {
		r.t.Fatalf("stopping: %v", err)
	}
}

func (r *rig) reap(p *process) error {
	for range p.news { // until its end
	}
	err := p.cmd.Wait()
	if p.http != nil {
		p.http.CloseIdleConnections()
	}
	r.set(nil)
	r.last = nil
	return err
}

// end tells machines that wait for an appliance that none will come.
func (r *rig) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	close(r.changed)
	r.changed = make(chan struct{})
}

var errOver = errors.New("the test is over")

// now gives the process that serves, nil for none, and what is closed when that changes.
func (r *rig) now() (p *process, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc, r.changed
}

// serving waits for a process that serves and that is not last, which may be nil.
func (r *rig) serving(ctx context.Context, last *process) (*process, error) {
	for {
		r.mu.Lock()
		p, changed, over := r.proc, r.changed, r.over
		r.mu.Unlock()
		switch {
		case over:
			return nil, errOver
		case p != nil && p.http != nil && p != last:
			return p, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// client speaks to one appliance and accepts its key only.
func client(spki string) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // a self-signed certificate has no chain: the key is checked instead
		VerifyConnection: func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
			if got := hex.EncodeToString(sum[:]); got != spki {
				return fmt.Errorf("the appliance showed the key %s", got)
			}
			return nil
		},
	}}}
}

// call asks the public API. A refusal is an *app.Error.
func (r *rig) call(method, path string, in, out any) error {
	return r.callOf(r.last, method, path, in, out)
}

// callOf is call of one process: it may be made while another goroutine ends the process.
func (r *rig) callOf(p *process, method, path string, in, out any) error {
	var body io.Reader
	if b, ok := in.([]byte); ok {
		body = bytes.NewReader(b)
	} else if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, p.ready.URL+path, body)
	if err != nil {
		return err
	}
	if _, raw := in.([]byte); !raw && in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		var refusal problem.Body
		if json.Unmarshal(raw, &refusal) == nil && refusal.Error.Message != "" {
			return &refusal.Error.Error
		}
		return fmt.Errorf("%s %s: %s: %.300s", method, path, res.Status, oneLine(raw))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// must is call that cannot fail.
func (r *rig) must(method, path string, in, out any) {
	r.t.Helper()
	if err := r.call(method, path, in, out); err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// verb starts a verb and gives its workflow's id.
func (r *rig) verb(machine string, v api.Verb, options any) string {
	r.t.Helper()
	if options == nil {
		options = struct{}{}
	}
	var res api.VerbResult
	r.must(http.MethodPost, "/api/v1/machines/"+machine+"/"+string(v), options, &res)
	return res.WorkflowID
}

func (r *rig) machine(name string) app.Machine {
	r.t.Helper()
	var m app.Machine
	r.must(http.MethodGet, "/api/v1/machines/"+name, nil, &m)
	return m
}

func (r *rig) workflow(id string) workflow.Workflow {
	r.t.Helper()
	var w workflow.Workflow
	r.must(http.MethodGet, "/api/v1/workflows/"+id, nil, &w)
	return w
}

// events gives what was recorded of a kind about the machine.
func (r *rig) events(kind string) []app.Event {
	r.t.Helper()
	r.settle()
	var l api.List[app.Event]
	r.must(http.MethodGet, "/api/v1/events?machine="+machineName+"&kind="+kind, nil, &l)
	return l.Items
}

// settle starts the appliance anew, so that all it has to record is written down: it records behind what it does.
func (r *rig) settle() {
	r.t.Helper()
	r.stop()
	r.start("")
}

// story is every workflow's journal, for messages.
func (r *rig) story() (out string) {
	var all api.List[workflow.Workflow]
	if err := r.call(http.MethodGet, "/api/v1/workflows", nil, &all); err != nil {
		return err.Error()
	}
	for _, w := range all.Items {
		out += fmt.Sprintf("%s %s %v\n%s", w.Verb, w.State, w.Error, r.journal(w.ID))
	}
	return out
}

// journal gives a workflow's journal, a line each, for messages.
func (r *rig) journal(id string) string {
	var l api.List[workflow.Entry]
	if err := r.call(http.MethodGet, "/api/v1/workflows/"+id+"/journal", nil, &l); err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	for _, e := range l.Items {
		fmt.Fprintf(&b, "  %s %s#%d %.200s\n", e.What, e.StepID, e.Attempt, e.Data)
	}
	return b.String()
}
