package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/better-compute/bcd/images/agent/boot"
	"github.com/better-compute/bcd/images/agent/commission"
	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/agent/early"
	"github.com/better-compute/bcd/images/agent/efi"
	"github.com/better-compute/bcd/images/agent/inventory"
	"github.com/better-compute/bcd/images/agent/network"
	"github.com/better-compute/bcd/images/agent/session"
	"github.com/better-compute/bcd/images/agent/wipe"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// settleTime is how long a command waits for the drivers of the devices that were there at power-on.
const settleTime = 30 * time.Second

// Main runs the agent of a booted ramdisk until it is told to stop, and gives the exit code: 0 when it was told to, 1 when it
// cannot go on. version is told to the appliance.
func Main(version string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	lines := NewLines()
	log := slog.New(lines.Handler(slog.NewTextHandler(os.Stdout, nil)))
	if err := run(ctx, version, lines, log); err != nil && ctx.Err() == nil {
		log.Error("the agent ends", "error", err)
		return 1
	}
	return 0
}

// run wires the agent to the machine.
func run(ctx context.Context, version string, lines *Lines, log *slog.Logger) error {
	data, err := session.ReadBootData("/" + agentv1.BootDataPath)
	if err != nil {
		return err
	}
	if data.Rescue != nil {
		log.Info("this is a rescue boot: a shell runs on every console", "sshKeys", len(data.Rescue.AuthorizedKeys))
	}
	neighbours := inventory.NewListener("/sys", log)
	nw := network.New(network.Config{Sys: "/sys", BootMAC: data.BootMAC, Log: log})
	clock := session.NewClock(nil)
	a, err := New(Config{
		Boot: data, Host: host, State: filepath.Dir(agentv1.SessionPath), Version: version, Log: log, Lines: lines, Clock: clock,
		Handlers: handlers(data, clock, neighbours, log),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { neighbours.Run(ctx) })
	a.cfg.Network = func(ctx context.Context) error {
		if err := nw.Up(ctx); err != nil {
			return err
		}
		wg.Go(func() { nw.Keep(ctx) })
		return nil
	}
	return a.Run(ctx)
}

// host reads what identifies the machine and its boot.
func host() Host {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	uuid, _ := os.ReadFile("/sys/class/dmi/id/product_uuid") // absent on machines without SMBIOS
	return Host{
		BootID: string(bytes.TrimSpace(id)), MACs: inventory.MACs("/sys"), UUID: string(bytes.TrimSpace(uuid)), Firmware: inventory.Firmware("/sys"),
	}
}

// handlers is the table of everything this agent can do.
func handlers(data *agentv1.BootData, clock *session.Clock, l *inventory.Listener, log *slog.Logger) map[string]Handler {
	now := func() time.Time { // the machine's own clock may be years off
		if t, known := clock.Now(); known {
			return t
		}
		return time.Now()
	}
	inv := inventory.New(inventory.Config{
		BootMAC: data.BootMAC, Log: log, Now: now, Addrs: addresses, LLDP: l.Heard, BMC: inventory.BMC("/dev/ipmi0"), Wants: wants,
	})
	disks := func(ctx context.Context) ([]agentv1.Disk, error) {
		settle(ctx, log)
		return inv.Disks(ctx)
	}
	out := map[string]Handler{
		agentv1.KindInventory: func(ctx context.Context, c agentv1.Command, p func(agentv1.ProgressReport)) (any, error) {
			settle(ctx, log)
			return inv.Handle(ctx, c, p)
		},
		agentv1.KindSetClock: setClock(clock, setSystemClock, "/dev/rtc0"),
		agentv1.KindReboot:   end(early.Restart),
		agentv1.KindPowerOff: end(early.PowerOff),
	}
	writer := disk.New(disk.Config{BootURLs: data.BootURLs, Disks: disks, Log: log, Firmware: inventory.Firmware("/sys")})
	for kind, h := range writer.Handlers() {
		out[kind] = h
	}
	wiper := wipe.New(wipe.Config{Disks: disks, Log: log, Now: now})
	for kind, h := range wiper.Handlers() {
		out[kind] = h
	}
	out[agentv1.KindDriverInvoke] = Invoke(map[string]Operations{
		"ramdisk":      {"inspect.inspect": out[agentv1.KindInventory]},
		"image-stream": {"deploy.deploy": writer.Deploy, "deploy.tearDown": wiper.TearDown},
	})
	for kind, h := range commission.New(commission.Config{Disks: disks, Ports: inv.Ports, BootURLs: data.BootURLs, Log: log, Now: now}).Handlers() {
		out[kind] = h
	}
	for kind, h := range efi.New(efi.Config{Disks: disks, Log: log, Firmware: inventory.Firmware("/sys")}).Handlers() {
		out[kind] = h
	}
	k := boot.New(boot.Config{Disks: disks, Log: log, Firmware: inventory.Firmware("/sys")})
	out[agentv1.KindConfigure] = configure(out[agentv1.KindConfigure], k.Look)
	out[agentv1.KindKexecLoad] = func(ctx context.Context, c agentv1.Command, p func(agentv1.ProgressReport)) (any, error) {
		result, jump, err := k.Handle(ctx, c, p)
		if err != nil || jump == nil {
			return result, err
		}
		return Then{Result: result, Do: jump}, nil
	}
	return out
}

// settle waits until the devices of the machine have their drivers: the network is up before the last disk is. A machine
// whose devices do not settle goes on with what there is; the inventory says so.
func settle(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := early.WaitSettled(ctx, early.ReportPath); err != nil {
		log.Warn("not waiting any longer for drivers", "error", err)
	}
}

// end ends this boot once the answer was delivered.
func end(how early.Action) Handler {
	return func(context.Context, agentv1.Command, func(agentv1.ProgressReport)) (any, error) {
		return Then{Result: struct{}{}, Do: func(context.Context) error { return early.End(how) }}, nil
	}
}

// wants tells which firmware files drivers asked for in vain.
func wants() ([]string, error) {
	r, err := early.ReadReport(early.ReportPath)
	var out []string
	for _, w := range r.Wants {
		out = append(out, w.String())
	}
	if err == nil && !r.Settled {
		err = errors.New("the drivers have not settled")
	}
	return out, err
}

// addresses lists a port's addresses in CIDR form.
func addresses(port string) []string {
	ifc, err := net.InterfaceByName(port)
	if err != nil {
		return nil
	}
	all, err := ifc.Addrs()
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range all {
		out = append(out, fmt.Sprint(a))
	}
	return out
}
