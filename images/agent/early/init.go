package early

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// agentGrace is how long the agent has to stop when the power key is pressed.
const agentGrace = 10 * time.Second

// Config of PID 1.
type Config struct {
	Exe   string   // program of the agent: "/proc/self/exe"
	Agent []string // its arguments, the name first
}

// initProcess is PID 1 at work.
type initProcess struct {
	cfg      Config
	log      *slog.Logger
	out      io.Writer
	children *children
	end      chan Action // room for one: the first wish counts

	mu     sync.Mutex
	report Report
}

// Run is the life of PID 1. It returns only when the machine cannot be ended as wished, or when this is not PID 1.
func Run(ctx context.Context, cfg Config) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("running as process %d: only the kernel starts init", os.Getpid())
	}
	merr := mountAll(firstMounts)
	out := openConsoles("/sys", "/dev")
	p := &initProcess{cfg: cfg, out: out, log: slog.New(slog.NewTextHandler(out, nil)), children: newChildren(), end: make(chan Action, 1)}
	release, _ := kernelRelease() // for the greeting only
	fmt.Fprintf(out, "\nbcd ramdisk: up %.2f s, kernel %s\n", uptime(), release)
	if merr != nil {
		p.log.Warn("mounting", "error", merr)
	}
	environment()
	return p.run(ctx)
}

func environment() {
	for k, v := range map[string]string{"PATH": "/bbin:/bin:/sbin", "HOME": "/root", "TERM": "vt102", "SHELL": "/bin/sh"} {
		_ = os.Setenv(k, v) // fails only for malformed names
	}
}

// uptime is the time since the kernel started, in seconds.
func uptime() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return float64(ts.Nano()) / 1e9
}

func (p *initProcess) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go p.children.reap(nil)
	p.signals(ctx)
	ready := p.plug(ctx)
	var programs sync.WaitGroup
	programs.Go(func() {
		select {
		case <-ready:
			p.runAgent(ctx)
		case <-ctx.Done():
		}
	})
	p.rescue(ctx, &programs)
	wish := <-p.end
	fmt.Fprintf(p.out, "bcd ramdisk: %s\n", wish)
	stop()
	programs.Wait()
	if err := killAll(); err != nil {
		return err
	}
	return End(wish)
}

// wish asks for an end of this boot.
func (p *initProcess) wish(a Action) {
	select {
	case p.end <- a:
	default:
	}
}

// signals acts on what shutdown tools and the kernel send to PID 1. Ctrl-Alt-Del becomes an interrupt instead of a reset.
func (p *initProcess) signals(ctx context.Context) {
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) // without it the key resets at once, which is no worse
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, unix.SIGINT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-sig:
				p.wish(actionOf(s))
			}
		}
	}()
}

// actionOf follows busybox's init: SIGUSR1 and SIGUSR2 end in power off, SIGTERM and ctrl-alt-del in a restart.
func actionOf(s os.Signal) Action {
	if s == unix.SIGUSR1 || s == unix.SIGUSR2 {
		return PowerOff
	}
	return Restart
}

// plug starts looking after devices. The channel is closed when the agent may start.
func (p *initProcess) plug(ctx context.Context) <-chan struct{} {
	ready := make(chan struct{})
	mods, err := openModules("/lib/modules", p.log)
	if err != nil { // the ramdisk was built for another kernel: what is built in may still reach the network
		p.log.Error("no drivers can be loaded", "error", err)
		p.update(func(r *Report) { r.Settled, r.Failed = true, map[string]string{"*": err.Error()} })
		close(ready)
		return ready
	}
	events := make(chan uevent, 256)
	d := &devices{mods: mods, sys: "/sys", events: events, report: p.update, ready: ready, input: func(n string) { p.watchInput(ctx, n) }}
	p.listen(ctx, events, mods)
	for _, n := range inputDevices("/dev") {
		p.watchInput(ctx, n)
	}
	go func() {
		if err := watchKmsg(ctx, "/dev/kmsg", p.kernelSaid); err != nil {
			p.log.Warn("kernel messages cannot be read", "error", err)
		}
	}()
	if isUEFI("/sys") {
		go func() {
			mods.load("efivarfs")
			if err := mountAll([]mount{efivars}); err != nil {
				p.log.Warn("mounting", "error", err)
			}
		}()
	}
	go d.run(ctx)
	return ready
}

func (p *initProcess) listen(ctx context.Context, events chan<- uevent, mods *modules) {
	sock, err := listenUevents()
	if err != nil {
		p.log.Warn("devices that turn up later get no driver", "error", err)
		return
	}
	go readUevents(ctx, sock, func(e uevent) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}, func() { go mods.coldplug("/sys") })
}

func (p *initProcess) watchInput(ctx context.Context, name string) {
	go watchPowerKey(ctx, "/sys", "/dev", name, func() {
		p.log.Info("the power key was pressed")
		p.wish(PowerOff)
	})
}

// kernelSaid looks for firmware failures.
func (p *initProcess) kernelSaid(msg string) {
	w, ok := parseWant(msg)
	if !ok {
		return
	}
	p.update(func(r *Report) {
		if !slices.Contains(r.Wants, w) {
			r.Wants = append(r.Wants, w)
			p.log.Warn(w.String())
		}
	})
}

// update changes the report and writes it.
func (p *initProcess) update(f func(*Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.report)
	if err := writeReport(ReportPath, p.report); err != nil {
		p.log.Warn("writing the device report", "error", err)
	}
}

// runAgent keeps the agent running.
func (p *initProcess) runAgent(ctx context.Context) {
	p.children.keep(ctx, program{name: "agent", exe: p.cfg.Exe, argv: p.cfg.Agent, attr: p.onConsoles}, agentGrace, p.log)
}

// onConsoles is for programs that read nothing and whose output goes to all consoles.
func (p *initProcess) onConsoles() (*os.ProcAttr, func(), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a program's output: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		r.Close()
		w.Close()
		return nil, nil, fmt.Errorf("opening a program's input: %w", err)
	}
	go func() {
		defer r.Close()
		_, _ = io.Copy(p.out, r) // ends with the last writer
	}()
	return &os.ProcAttr{Dir: "/", Files: []*os.File{null, w, w}, Sys: &syscall.SysProcAttr{Setsid: true}},
		func() { null.Close(); w.Close() }, nil
}
