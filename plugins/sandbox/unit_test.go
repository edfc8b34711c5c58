package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The appliance's unit runs bcd under an account of its own with a few capabilities, not as root.

const bcdUID = 64999 // an account that no machine has

func init() {
	probes["unit"] = func(args []string) (any, error) { return serveUnit(args[0]) }
	probes["listen"] = func(args []string) (any, error) { return nil, listen(args[0]) }
}

// asUnit gives a process bcd's account and capabilities.
func asUnit(caps ...uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bcdUID, Gid: bcdUID}, AmbientCaps: caps}
}

func unitDir(t *testing.T) string {
	t.Helper()
	dir := socketDir(t)
	if err := os.Chown(dir, bcdUID, bcdUID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listen is a plugin with a socket and a directory that it keeps to itself.
func listen(dir string) error {
	l, err := net.Listen("unix", filepath.Join(dir, "plugin.sock"))
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "own"), 0o700), os.WriteFile(filepath.Join(dir, "own", "file"), nil, 0o600)); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode("ready"); err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		f, err := lookAtSelf()
		if err != nil {
			return err
		}
		_ = json.NewEncoder(c).Encode(f) // who only tried the door has gone
		c.Close()
	}
}

// unitResult is what a bcd under the unit's account finds.
type unitResult struct {
	Plugin       selfFacts
	Facts        Facts
	State        []string
	Unreached    string // the error of dialing before Reach
	WrongReached string // and of reaching for what is no socket
	Removed      bool
}

// serveUnit is a bcd that starts a plugin, talks to it, kills it and removes what was its.
func serveUnit(dir string) (unitResult, error) {
	var r unitResult
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return r, err
	}
	defer exe.Close()
	s, err := New(Config{Enabled: true, Landlock: true})
	if err != nil {
		return r, err
	}
	p, err := s.Prepare(context.Background(), Plugin{Name: "unit", Names: []string{"unit"}, Exe: exe, Args: []string{probeArg, "listen", dir}, SocketDir: dir})
	if err != nil {
		return r, err
	}
	r.Facts, r.State = p.Facts, s.State()
	err = r.talk(p, dir)
	err = errors.Join(err, p.Kill())
	_ = p.Cmd.Wait()
	err = errors.Join(err, p.Close(), os.RemoveAll(filepath.Join(dir, "own")), os.RemoveAll(filepath.Join(dir, "plugin.sock")))
	left, err1 := os.ReadDir(dir)
	r.Removed = len(left) == 0
	return r, errors.Join(err, err1)
}

func (r *unitResult) talk(p *Prepared, dir string) error {
	out, err := p.Cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.Cmd.Stderr = os.Stderr
	if err := p.Start(); err != nil {
		return err
	}
	var ready string
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		return err
	}
	socket := filepath.Join(dir, "plugin.sock")
	c, err := net.Dial("unix", socket)
	if err == nil {
		c.Close()
	}
	r.Unreached = errName(err)
	if err := p.Reach(filepath.Join(dir, "own")); err != nil {
		r.WrongReached = err.Error()
	}
	if err := p.Reach(socket); err != nil {
		return err
	}
	if c, err = net.Dial("unix", socket); err != nil {
		return err
	}
	defer c.Close()
	return json.NewDecoder(c).Decode(&r.Plugin)
}

func runUnit(t *testing.T, attr *syscall.SysProcAttr) unitResult {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", probeArg, "unit", unitDir(t))
	cmd.SysProcAttr, cmd.Stderr, cmd.Env = attr, t.Output(), []string{}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return decode[unitResult](t, string(out))
}

// TestUnderTheUnit gives bcd the four capabilities and nothing else: plugins have uids of their own and none of the
// capabilities, and bcd reaches, kills and clears away what is theirs.
func TestUnderTheUnit(t *testing.T) {
	needRoot(t)
	r := runUnit(t, asUnit(unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_CHOWN, unix.CAP_NET_BIND_SERVICE))
	if uid := r.Facts.UID; uid < firstUID || !slices.Equal(r.Plugin.UIDs, []int{uid, uid, uid}) || len(r.Plugin.Groups) != 0 {
		t.Errorf("%+v", r)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if got := r.Plugin.Status[set]; got != "0000000000000000" {
			t.Errorf("%s is %s", set, got)
		}
	}
	if r.Unreached != "EACCES" || !strings.Contains(r.WrongReached, "no socket") || !r.Removed {
		t.Errorf("before Reach: %q; reaching for a directory: %q; removed: %v", r.Unreached, r.WrongReached, r.Removed)
	}
}

// TestWithoutCapabilities runs plugins under bcd's own uid, says so, and keeps them from all else it can.
func TestWithoutCapabilities(t *testing.T) {
	needRoot(t)
	for name, caps := range map[string][]uintptr{"none": nil, "not all": {unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL}} {
		t.Run(name, func(t *testing.T) {
			r := runUnit(t, asUnit(caps...))
			if r.Facts.UID != bcdUID || r.Plugin.UIDs[0] != bcdUID || r.Plugin.Status["CapEff"] != "0000000000000000" || r.Plugin.Status["Seccomp"] != "2" || !r.Removed {
				t.Errorf("%+v", r)
			}
			if !slices.ContainsFunc(r.State, func(s string) bool { return strings.HasPrefix(s, "plugins share bcd's uid") }) || !slices.Equal(r.State, r.Facts.Missing) {
				t.Errorf("state %q, facts %q", r.State, r.Facts.Missing)
			}
		})
	}
}

// TestUnitDies kills a bcd of the unit's account: its guard has the power it needs to end what is not its own, and to clear
// it away.
func TestUnitDies(t *testing.T) {
	needRoot(t)
	dir := unitDir(t)
	bcd, out := startHost(t, Config{Enabled: true}, &exec.Cmd{Dir: dir,
		SysProcAttr: asUnit(unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_CHOWN)}, "family")
	var pids []int
	if err := out.Decode(&pids); err != nil {
		t.Fatal(err)
	}
	w := watch(t, append(pids, guardOf(t, bcd.Process.Pid)))
	if err := bcd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.gone(t)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the socket directory is left: %v", err)
	}
}
