package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
)

// stopTimeout is how long QEMU gets to write back its images and end before it is killed.
const stopTimeout = 5 * time.Second

// qemu is the Hypervisor that runs QEMU processes.
type qemu struct {
	cfg     Config
	console *Console
	log     *slog.Logger
}

// Start implements Hypervisor.
func (q *qemu) Start(ctx context.Context, boot Boot) (Guest, error) {
	vars, err := q.variables(boot)
	if err != nil {
		return nil, err
	}
	return startProcess(ctx, process{
		args: arguments(q.cfg, boot, vars), netns: q.cfg.Netns, console: q.console, log: q.log.With("machine", q.cfg.Name),
	})
}

// variables gives the file of the machine's UEFI variables, made from the firmware's empty set the first time.
func (q *qemu) variables(boot Boot) (string, error) {
	if boot.Firmware != app.FirmwareUEFI {
		return "", nil
	}
	path := filepath.Join(q.cfg.Dir, varsFile)
	if _, err := os.Stat(path); err == nil {
		return path, q.override(path, boot)
	}
	empty, err := os.ReadFile(ovmfVars)
	if err != nil {
		return "", app.Errorf(app.Unavailable, "ovmf-missing", "UEFI firmware for virtual machines is missing: %w", err).
			Do("install the package ovmf")
	}
	tmp := path + ".new"
	if err := errors.Join(os.WriteFile(tmp, empty, 0o600), os.Rename(tmp, path)); err != nil {
		return "", fmt.Errorf("making the UEFI variables of %s: %w", q.cfg.Name, err)
	}
	return path, nil
}

// override tells the firmware of an override in the only way it has once its order is its own.
func (q *qemu) override(vars string, boot Boot) error {
	if !boot.Override || !inVariables(q.cfg, boot) {
		return nil
	}
	found, err := bootNext(vars, boot.Target)
	if err != nil {
		return fmt.Errorf("overriding the boot order of %s: %w", q.cfg.Name, err)
	}
	if !found {
		q.log.Warn("the firmware has no boot option for the override", "machine", q.cfg.Name, "target", string(boot.Target))
	}
	return nil
}

// process says how one QEMU runs.
type process struct {
	args    []string // without the binary; they use qmpFD and serialFD
	netns   string
	console *Console
	log     *slog.Logger
}

// qemuGuest is one running QEMU.
type qemuGuest struct {
	process
	qmp    *qmp
	serial net.Conn
	stderr *tailBuffer
	done   chan struct{}

	mu      sync.Mutex // protects what follows
	proc    *os.Process
	stopped bool   // by Stop
	reason  string // of QEMU's SHUTDOWN event, "" before
	how     End
}

// startProcess starts QEMU and waits until it answers on its control channel.
func startProcess(ctx context.Context, p process) (Guest, error) {
	binary, err := exec.LookPath(qemuBinary)
	if err != nil {
		return nil, app.Errorf(app.Unavailable, "qemu-missing", "the emulator is missing: %w", err).Do("install the package qemu-system-x86")
	}
	control, controlPeer, err := socketPair("qmp")
	if err != nil {
		return nil, err
	}
	serial, serialPeer, err := socketPair("serial")
	if err != nil {
		return nil, errors.Join(err, control.Close(), controlPeer.Close())
	}
	g := &qemuGuest{process: p, serial: serial, stderr: &tailBuffer{}, done: make(chan struct{})}
	cmd := exec.Command(binary, p.args...)
	cmd.Stdout, cmd.Stderr = g.stderr, g.stderr
	cmd.ExtraFiles = []*os.File{controlPeer, serialPeer}
	// Should this program be killed, its guests must not stay behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}

	g.qmp = newQMP(control, g.event)
	p.console.powerOn(serial)
	started := make(chan error, 1)
	go g.live(cmd, started)
	err = <-started
	err = errors.Join(err, controlPeer.Close(), serialPeer.Close())
	if err == nil {
		err = g.qmp.start(ctx)
	}
	if err != nil {
		g.Stop()
		return nil, g.explain(err)
	}
	return g, nil
}

// live starts the process, reads its console, and waits for its end. It stays on one OS thread until then: the thread
// carries the network namespace, and the parent-death signal is bound to the thread, not to the program. The thread is
// never unlocked, so that it ends with the goroutine and its namespace does not leak to others.
func (g *qemuGuest) live(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer close(g.done)
	defer g.console.powerOff()
	err := enter(g.netns)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = g.serial.Close()
		_ = g.qmp.conn.Close()
		started <- err
		return
	}
	g.mu.Lock()
	g.proc = cmd.Process
	g.mu.Unlock()
	started <- nil

	read := make(chan struct{})
	go func() {
		defer close(read)
		g.readSerial()
	}()
	err = cmd.Wait()
	<-read       // what the guest printed last is there before its end is known
	<-g.qmp.gone // and so is the reason QEMU gave
	_ = g.serial.Close()
	_ = g.qmp.conn.Close()
	g.settle(err)
}

// enter moves the calling thread into a network namespace, named or by path; "" stays.
func enter(netns string) error {
	if netns == "" {
		return nil
	}
	path := netns
	if !strings.Contains(path, "/") {
		path = filepath.Join("/run/netns", netns)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", netns, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w", netns, err)
	}
	return nil
}

func (g *qemuGuest) readSerial() {
	buf := make([]byte, 4096)
	for {
		n, err := g.serial.Read(buf)
		if n > 0 {
			g.console.print(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// event keeps the reason of a shutdown.
func (g *qemuGuest) event(name string, data json.RawMessage) {
	if name != "SHUTDOWN" {
		return
	}
	var d struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(data, &d)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reason = d.Reason
}

// settle decides how the guest ended, from facts that are all in.
func (g *qemuGuest) settle(exit error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stopped:
		g.how = End{Kind: EndStopped}
	case exit == nil && g.reason == "guest-reset":
		g.how = End{Kind: EndReset}
	case exit == nil && g.reason == "guest-shutdown":
		g.how = End{Kind: EndPowerOff}
	default:
		if exit == nil {
			exit = fmt.Errorf("it ended with reason %q", g.reason)
		}
		g.how = End{Kind: EndDied, Err: g.explain(exit)}
	}
}

// explain adds what QEMU printed.
func (g *qemuGuest) explain(err error) error {
	if said := g.stderr.String(); said != "" {
		return app.Errorf(app.Unavailable, "qemu-failed", "the emulator failed: %w: %s", err, said)
	}
	return app.Errorf(app.Unavailable, "qemu-failed", "the emulator failed: %w", err)
}

// Stop implements Guest: SIGTERM, which makes QEMU write back its images, then SIGKILL.
func (g *qemuGuest) Stop() {
	g.mu.Lock()
	g.stopped = true
	proc := g.proc
	g.mu.Unlock()
	if proc != nil {
		_ = proc.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(stopTimeout, func() { _ = proc.Kill() })
		defer kill.Stop()
	}
	<-g.done
}

func (g *qemuGuest) command(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return g.qmp.do(ctx, name)
}

// PowerButton implements Guest.
func (g *qemuGuest) PowerButton() error { return g.command("system_powerdown") }

// NMI implements Guest.
func (g *qemuGuest) NMI() error { return g.command("inject-nmi") }

// SetMedium implements Guest. The stick is pulled, and cannot be put back into a running machine.
func (g *qemuGuest) SetMedium(drive int, file string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	switch {
	case drive == driveUSB && file == "":
		return g.qmp.run(ctx, "device_del", map[string]any{"id": stickID})
	case drive == driveUSB:
		return errors.New("a stick shows at the next start")
	case file == "":
		return g.qmp.run(ctx, "eject", map[string]any{"id": cdID, "force": true})
	}
	return g.qmp.run(ctx, "blockdev-change-medium", map[string]any{
		"id": cdID, "filename": file, "format": "raw", "read-only-mode": "read-only", "force": true,
	})
}

// Done implements Guest.
func (g *qemuGuest) Done() <-chan struct{} { return g.done }

// End implements Guest.
func (g *qemuGuest) End() End {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.how
}

// socketPair gives our end of a stream as a connection and the end a child inherits as a file: no name in a file
// system, so nothing to collide, to be too long, or to be left behind.
func socketPair(name string) (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making the %s channel: %w", name, err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name+"-peer")
	conn, err := net.FileConn(ours)
	err = errors.Join(err, ours.Close())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("opening the %s channel: %w", name, err), theirs.Close())
	}
	return conn, theirs, nil
}

// tailBuffer keeps the last octets written to it.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

var _ io.Writer = (*tailBuffer)(nil)

func (t *tailBuffer) Write(p []byte) (int, error) {
	const keep = 2048
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - keep; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
