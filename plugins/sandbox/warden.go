package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// selfExe is the running binary, whatever lies at its path by now.
const selfExe = "/proc/self/exe"

// guardPatience bounds one request to the guard; killing what hangs in the kernel takes it five seconds.
const guardPatience = 20 * time.Second

// warden is bcd's side of the guard: it keeps one running while there are plugins, starts it again when it dies, and tells it
// then of every plugin anew.
type warden struct {
	log *slog.Logger

	mu      sync.Mutex // protects the following, and is held for the length of a request
	users   int
	next    int
	charges map[int]charge
	uid     int // the guard's for killing
	guard   *guardProcess
	idle    chan struct{} // closed with the last release
}

type guardProcess struct {
	cmd     *exec.Cmd
	in, out *os.File
	started time.Time
	ended   chan struct{}
}

// acquire makes the guard for its first user and gives the id of the user's charge. Each acquire has its release.
func (w *warden) acquire(uid int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guard == nil || w.uid != uid {
		w.stop()
		w.uid = uid
		if err := w.spawn(); err != nil {
			return 0, err
		}
	}
	if w.users++; w.users == 1 {
		w.idle = make(chan struct{})
	}
	w.next++
	return w.next, nil
}

// release ends the care for a plugin, and the guard with the last.
func (w *warden) release(id int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, kept := w.charges[id]
	delete(w.charges, id)
	if w.users--; w.users == 0 {
		close(w.idle)
		w.stop()
		return nil
	}
	if !kept {
		return nil
	}
	return w.ask(guardRequest{Op: "drop", ID: id})
}

// keep gives a plugin, or what is newly known of it, into the guard's care.
func (w *warden) keep(id int, c charge) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.charges[id] = c
	return w.ask(guardRequest{Op: "keep", ID: id, Charge: c})
}

// kill ends a plugin that was kept.
func (w *warden) kill(id int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ask(guardRequest{Op: "kill", ID: id})
}

// ask starts the guard where there is none, and once more when it dies on the request.
func (w *warden) ask(r guardRequest) error {
	var err error
	for range 2 {
		if w.guard == nil {
			if err = w.spawn(); err != nil {
				return err
			}
		}
		var refusal error
		if refusal, err = w.guard.ask(r); err == nil {
			return refusal
		}
		w.stop()
	}
	return err
}

// spawn starts the guard and hands it every charge.
func (w *warden) spawn() error {
	g, err := startGuard(w.uid)
	if err != nil {
		return err
	}
	w.guard = g
	for id, c := range w.charges {
		refusal, err := g.ask(guardRequest{Op: "keep", ID: id, Charge: c})
		if err := errors.Join(refusal, err); err != nil {
			w.stop()
			return err
		}
	}
	go w.watch(g)
	return nil
}

// stop ends the guard, which leaves the plugins alone as long as it has no word of bcd's end.
func (w *warden) stop() {
	g := w.guard
	w.guard = nil
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// watch starts the guard again when it ends by itself, not more than once a second; a request that comes meanwhile starts it
// at once.
func (w *warden) watch(g *guardProcess) {
	<-g.ended
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.guard != g {
		return
	}
	w.guard = nil
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(time.Until(g.started.Add(time.Second))):
	}
	w.mu.Lock()
	if w.guard != nil || w.users == 0 {
		return
	}
	if err := w.spawn(); err != nil {
		w.log.Error("the plugins' guard ended and does not start again: what plugins started may outlive bcd", "error", err)
		return
	}
	w.log.Warn("the plugins' guard ended; another took over", "state", g.cmd.ProcessState.String())
}

// startGuard runs the guard in a session of its own, out of reach of what a terminal or a shell sends to bcd's.
func startGuard(uid int) (*guardProcess, error) {
	in, toGuard, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making the guard's pipe: %w", err)
	}
	defer in.Close()
	fromGuard, out, err := os.Pipe()
	if err != nil {
		toGuard.Close()
		return nil, fmt.Errorf("making the guard's pipe: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(selfExe, ShimCommand, "guard", strconv.Itoa(uid))
	cmd.Args[0] = "bcd"
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		toGuard.Close()
		fromGuard.Close()
		return nil, fmt.Errorf("starting the plugins' guard: %w", err)
	}
	g := &guardProcess{cmd: cmd, in: toGuard, out: fromGuard, started: time.Now(), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its state says how
		g.in.Close()
		g.out.Close()
		close(g.ended)
	}()
	return g, nil
}

// ask gives the guard's refusal, or that it did not answer.
func (g *guardProcess) ask(r guardRequest) (refusal, err error) {
	end := time.Now().Add(guardPatience)
	err = errors.Join(g.in.SetDeadline(end), g.out.SetDeadline(end))
	if err == nil {
		err = json.NewEncoder(g.in).Encode(r)
	}
	var reply guardReply
	if err == nil {
		err = json.NewDecoder(g.out).Decode(&reply)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the plugins' guard: %w", err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error), nil
	}
	return nil, nil
}
