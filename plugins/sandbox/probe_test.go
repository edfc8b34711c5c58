package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// probes are what plugins do in tests; what they give is printed as JSON.
var probes = map[string]func(args []string) (any, error){
	"self":     func([]string) (any, error) { return lookAtSelf() },
	"calls":    func([]string) (any, error) { return tryCalls(), nil },
	"filtered": func([]string) (any, error) { return tryCallsFiltered() },
	"files":    func(args []string) (any, error) { return tryFiles(args), nil },
	"peek":     func(args []string) (any, error) { return peek(args[0], args[1]) },
	"secret":   func([]string) (any, error) { return nil, keepSecret() },
	"wait":     func([]string) (any, error) { return nil, wait("ready") },
	"family":   func([]string) (any, error) { return nil, raiseFamily() },
	"orphan":   func([]string) (any, error) { return nil, makeOrphan() },
	"squat":    func(args []string) (any, error) { return nil, squat(args[0]) },
	"host":     func(args []string) (any, error) { return nil, host(args) },
	"threads":  func([]string) (any, error) { return manyThreads() },
}

// selfFacts is what a plugin finds out about itself.
type selfFacts struct {
	UIDs, GIDs, Groups []int
	Env                []string
	Status             map[string]string // of /proc/self/status
	FDs                []string
	Dir, Exe           string
	Args               []string
	PPid, Group        int
	Death              int
}

// death is the first thread's death signal, read while nothing but that thread runs Go code: the others have none.
var death = func() (sig int) {
	_ = unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0) // 0 fails the tests
	return sig
}()

func lookAtSelf() (selfFacts, error) {
	f := selfFacts{Death: death, Env: os.Environ(), Args: os.Args, PPid: os.Getppid(), Group: unix.Getpgrp(), Status: map[string]string{}}
	ru, eu, su := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	f.UIDs, f.GIDs = []int{ru, eu, su}, []int{rg, eg, sg}
	var err1, err2, err3, err4 error
	f.Groups, err1 = os.Getgroups()
	f.Dir, err2 = os.Getwd()
	f.Exe, err3 = os.Readlink("/proc/self/exe")
	status, err4 := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(line, ":")
		f.Status[k] = strings.TrimSpace(v)
	}
	entries, err5 := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		f.FDs = append(f.FDs, e.Name())
	}
	return f, errors.Join(err1, err2, err3, err4, err5)
}

// call is a system call with arguments that do nothing anywhere, and fail without need of a privilege where they can.
type call struct {
	name string
	args [3]uintptr
}

// cloneCalls asks for each kind of namespace, together with a thread that shares no signals, which no kernel gives.
func cloneCalls() []call {
	var calls []call
	for _, flag := range []uintptr{unix.CLONE_NEWNS, unix.CLONE_NEWCGROUP, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID, unix.CLONE_NEWNET} {
		calls = append(calls, call{"clone", [3]uintptr{flag | unix.CLONE_THREAD}})
	}
	return append(calls, call{"clone", [3]uintptr{unix.CLONE_THREAD}}, call{"clone3", [3]uintptr{}})
}

func (c call) String() string {
	if c.name == "clone" {
		return fmt.Sprintf("clone %#x", c.args[0])
	}
	return c.name
}

func allCalls() []call {
	var calls []call
	for _, n := range deniedCalls(runtime.GOARCH) {
		c := call{name: n}
		if n == "ptrace" {
			c.args[0] = 0xffff // 0 would make the thread traced, and Go's next signal stop it for good
		}
		calls = append(calls, c)
	}
	return append(calls, cloneCalls()...)
}

// tryCalls gives each call's error, on a thread of its own, since some change it.
func tryCalls() map[string]string {
	info, err := arch.GetInfo("")
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	got := map[string]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for _, c := range allCalls() {
			_, _, errno := syscall.RawSyscall(uintptr(info.SyscallNames[c.name]), c.args[0], c.args[1], c.args[2])
			got[c.String()] = unix.ErrnoName(errno)
		}
	}()
	<-done
	return got
}

// tryCallsFiltered does so as root, under the filter alone: what fails there fails for the filter.
func tryCallsFiltered() (any, error) {
	ready, leave, got := make(chan struct{}), make(chan struct{}), make(chan map[string]string)
	go func() { // a thread that was there before the filter
		runtime.LockOSThread()
		close(ready)
		<-leave
		got <- tryCalls()
	}()
	<-ready
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	if err := filterThreads(); err != nil {
		return nil, err
	}
	close(leave)
	return <-got, nil
}

// tryFiles reads, writes or runs each path and gives the errors: "read PATH", "write PATH", "list PATH", "run PATH".
func tryFiles(args []string) map[string]string {
	got := map[string]string{}
	for _, a := range args {
		verb, path, _ := strings.Cut(a, " ")
		var err error
		switch verb {
		case "read":
			_, err = os.ReadFile(path)
		case "list":
			_, err = os.ReadDir(path)
		case "write":
			err = os.WriteFile(path, []byte("x"), 0o755)
		case "run":
			err = exec.Command(path).Run()
		}
		got[a] = errName(err)
	}
	return got
}

func errName(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	default:
		return err.Error()
	}
}

// peek tries to see into another process.
func peek(pid, address string) (map[string]string, error) {
	got := map[string]string{}
	for _, f := range []string{"mem", "environ", "maps", "exe", "fd", "cwd", "root"} {
		p := filepath.Join("/proc", pid, f)
		var err error
		if f == "fd" {
			_, err = os.ReadDir(p)
		} else if slices.Contains([]string{"exe", "cwd", "root"}, f) {
			_, err = os.Readlink(p)
		} else if fd, e := os.Open(p); e != nil {
			err = e
		} else {
			_, err = fd.Read(make([]byte, 1))
			fd.Close()
		}
		got[f] = errName(err)
	}
	if pid == "self" {
		return got, nil
	}
	var n int
	var at uintptr
	if _, err := fmt.Sscan(pid, &n); err != nil {
		return nil, err
	}
	if _, err := fmt.Sscan(address, &at); err != nil {
		return nil, err
	}
	b := make([]byte, 8)
	local, remote := []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: at, Len: 8}}
	_, err := unix.ProcessVMReadv(n, local, remote, 0)
	got["process_vm_readv"] = errName(err)
	got["kill"] = errName(unix.Kill(n, unix.SIGKILL))
	return got, nil
}

// manyThreads makes work for as many threads as Go makes for blocking calls.
func manyThreads() (any, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	const n = 6
	done := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			_, _ = io.ReadFull(r, make([]byte, 1))
			done <- struct{}{}
		}()
	}
	_, err = w.Write(make([]byte, n))
	for range n {
		<-done
	}
	return "done", err
}

// wait says what it is told to and goes on until it is killed.
func wait(word any) error {
	if err := json.NewEncoder(os.Stdout).Encode(word); err != nil {
		return err
	}
	signal.Ignore(unix.SIGTERM, unix.SIGHUP, unix.SIGINT)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, unix.SIGUSR1)
	<-ch
	return nil
}

var secretValue = []byte("planted password")

func keepSecret() error { return wait(uintptr(unsafe.Pointer(&secretValue[0]))) }

// child is this program again with another probe.
func child(probe string, attr *syscall.SysProcAttr) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", probeArg, probe)
	cmd.SysProcAttr = attr
	return cmd
}

// raiseFamily starts a child, one in a session of its own, and one whose parent has gone, and prints their pids.
func raiseFamily() error {
	pids := []int{os.Getpid()}
	for _, attr := range []*syscall.SysProcAttr{{}, {Setsid: true}} {
		c := child("wait", attr)
		out, err := c.StdoutPipe()
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		var ready string
		if err := json.NewDecoder(out).Decode(&ready); err != nil {
			return err
		}
		pids = append(pids, c.Process.Pid)
	}
	out, err := child("orphan", &syscall.SysProcAttr{Setsid: true}).Output()
	if err != nil {
		return err
	}
	var pid int
	if err := json.Unmarshal(out, &pid); err != nil {
		return err
	}
	return wait(append(pids, pid))
}

func makeOrphan() error {
	c := child("wait", &syscall.SysProcAttr{Setsid: true})
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	var ready string
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c.Process.Pid)
}

// host is a bcd with one plugin, which prints on its standard output. Its arguments: a configuration as JSON, the socket
// directory, the plugin's name and probe.
func host(args []string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return err
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer exe.Close()
	s, err := New(cfg)
	if err != nil {
		return err
	}
	r, err := s.Prepare(context.Background(), Plugin{Name: args[2], Names: []string{args[2]}, Exe: exe, Args: append([]string{probeArg}, args[3:]...), SocketDir: args[1]})
	if err != nil {
		return err
	}
	r.Cmd.Stdout, r.Cmd.Stderr = os.Stdout, os.Stderr
	if err := r.Start(); err != nil {
		return errors.Join(err, r.Close())
	}
	return errors.Join(r.Cmd.Wait(), r.Close())
}

// squat holds a name in the abstract namespace.
func squat(name string) error {
	l, err := net.Listen("unix", name)
	if err != nil {
		return err
	}
	defer l.Close()
	return wait("ready")
}
