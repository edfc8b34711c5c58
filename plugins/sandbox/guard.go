package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// charge is a plugin in the guard's care: what has to end with it.
type charge struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`              // -1: bcd's own, which is killed by group alone
	Own    bool   `json:"own,omitempty"`    // the uid is this plugin's alone: everything of it ends
	Group  int    `json:"group,omitempty"`  // process group, 0 not known yet
	Cgroup string `json:"cgroup,omitempty"` // directory
	Socket string `json:"socket"`           // its socket directory
}

// guardRequest is a line to the guard; each has its guardReply.
type guardRequest struct {
	Op     string `json:"op"` // keep, kill, drop
	ID     int    `json:"id"`
	Charge charge `json:"charge"` // of keep, which may be said again
}

type guardReply struct {
	Error string `json:"error,omitempty"`
}

// guard is the other end: a process that does what it is told on standard input and, when that ends because bcd ended, kills
// every plugin that is left, with all they started.
type guard struct {
	killer  *killer // nil where bcd shares its uid with plugins
	charges map[int]charge
}

// runGuard lives until standard input ends. Its argument is the uid that the guard takes for killing.
func runGuard(args []string) error {
	uid, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("reading the guard's uid: %w", err)
	}
	// What ends bcd must not end its guard first.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	g := guard{charges: map[int]charge{}}
	if uid > 0 {
		if g.killer, err = startKiller(uid); err != nil {
			return err
		}
	}
	served := g.serve(os.Stdin, os.Stdout)
	return errors.Join(served, g.killAll())
}

func (g *guard) serve(in io.Reader, out io.Writer) error {
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r guardRequest
		if err := dec.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading what bcd wants: %w", err)
		}
		var reply guardReply
		if err := g.do(r); err != nil {
			reply.Error = err.Error()
		}
		if err := enc.Encode(reply); err != nil {
			return fmt.Errorf("answering bcd: %w", err)
		}
	}
}

func (g *guard) do(r guardRequest) error {
	switch r.Op {
	case "keep":
		g.charges[r.ID] = r.Charge
	case "drop":
		delete(g.charges, r.ID)
	case "kill":
		c, ok := g.charges[r.ID]
		if !ok {
			return fmt.Errorf("no plugin %d is in the guard's care", r.ID)
		}
		return g.kill(c)
	default:
		return fmt.Errorf("unknown request %q", r.Op)
	}
	return nil
}

// killAll signals every plugin before it waits for any, and removes their socket directories, as bcd would have.
func (g *guard) killAll() error {
	var errs []error
	for _, c := range g.charges {
		errs = append(errs, g.signal(c))
	}
	for _, c := range g.charges {
		errs = append(errs, g.kill(c))
		errs = append(errs, c.clear())
	}
	return errors.Join(errs...)
}

// clear removes the socket directory, which its plugin, now dead, may have had for its own.
func (c charge) clear() error {
	if !filepath.IsAbs(c.Socket) || filepath.Dir(c.Socket) == c.Socket {
		return nil // a charge without one
	}
	if c.UID >= 0 {
		if err := takeBack(c.Socket); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.Socket)
}

// kill ends everything of a plugin and sees it gone. A process that has died but was not waited for is gone.
func (g *guard) kill(c charge) error {
	err := killCgroup(c.Cgroup)
	for wait := newPatience(killPatience); ; {
		if err := g.signal(c); err != nil {
			return fmt.Errorf("killing plugin %s: %w", c.Name, err)
		}
		left, err1 := living(procRoot, c)
		if err1 != nil || len(left) == 0 {
			return errors.Join(err, err1)
		}
		if !wait.more() {
			return fmt.Errorf("processes %v of plugin %s do not end: they hang in the kernel", left, c.Name)
		}
	}
}

// signal sends SIGKILL: to all there is of an own uid, or else to the process group.
func (g *guard) signal(c charge) error {
	switch {
	case c.Own && c.UID > 0 && g.killer != nil:
		return g.killer.kill(c.UID, -1)
	case c.Group <= 1: // not started; and -1 would mean everybody
		return nil
	case c.UID > 0 && g.killer != nil:
		return g.killer.kill(c.UID, -c.Group)
	default:
		return ignoreNobody(unix.Kill(-c.Group, unix.SIGKILL))
	}
}
