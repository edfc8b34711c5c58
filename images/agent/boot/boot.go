package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Limits of what is loaded.
const (
	maxKernel  = 512 << 20 // bytes
	maxInitrd  = 2 << 30   // bytes, all together
	maxCmdline = 2047      // bytes, of an x86 kernel
)

// Config of a Kexec. Disks and Log are required.
type Config struct {
	Disks    func(ctx context.Context) ([]agentv1.Disk, error)
	Log      *slog.Logger
	Firmware string // "uefi" or "bios": which branch of a configuration that asks is taken
	Dev      string // root of /dev
	Proc     string // root of /proc
	Sys      string // root of /sys
	// What touches the kernel; nil is the kernel.
	Mount func(source, target, fstype string) (unmount func() error, err error)
	Load  func(kernel, initrd *os.File, cmdline string) error
	Drop  func() error                                   // unloads
	Quiet func(ports []string) []error                   // turns network ports off
	Jump  func() error                                   // does not return when it works
	Room  func(dir string) (free, size int64, err error) // bytes of a mounted file system
}

// Kexec serves agentv1.KindKexecLoad.
type Kexec struct{ cfg Config }

// New makes a Kexec. It touches nothing.
func New(cfg Config) *Kexec {
	cfg.Dev, cfg.Proc, cfg.Sys = or(cfg.Dev, "/dev"), or(cfg.Proc, "/proc"), or(cfg.Sys, "/sys")
	if cfg.Mount == nil {
		cfg.Mount = mount
	}
	if cfg.Load == nil {
		cfg.Load = load
	}
	if cfg.Drop == nil {
		cfg.Drop = drop
	}
	if cfg.Quiet == nil {
		cfg.Quiet = portsDown
	}
	if cfg.Jump == nil {
		cfg.Jump = jump
	}
	if cfg.Room == nil {
		cfg.Room = room
	}
	return &Kexec{cfg: cfg}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Handle loads the default entry of the disk in the order. jump leaves this kernel for the loaded one: it is for after the
// answer, and nil for a dry run. Nothing of the disk stays mounted. What a boot through the firmware gets round is no error:
// it is in the result's Refused, nothing is loaded then, and jump is nil.
func (k *Kexec) Handle(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (agentv1.KexecResult, func(context.Context) error, error) {
	result, jump, err := k.handle(ctx, cmd, progress)
	if e, ok := app.AsError(err); ok && e.WayOut == wayOut {
		k.cfg.Log.Warn("no jump into the disk's own kernel", "error", err)
		result.Refused = &agentv1.Error{Code: string(e.Code), Reason: e.Reason, Message: e.Message, WayOut: e.WayOut}
		return result, nil, nil
	}
	return result, jump, err
}

func (k *Kexec) handle(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (result agentv1.KexecResult, jump func(context.Context) error, err error) {
	var order agentv1.Kexec
	if err := json.Unmarshal(cmd.Payload, &order); err != nil {
		return result, nil, app.Errorf(app.InvalidInput, "bad-payload", "the payload of %s cannot be read: %w", cmd.Kind, err)
	}
	if err := app.ValidLine("kernelArgs", order.KernelArgs, maxCmdline); err != nil {
		return result, nil, err
	}
	if err := k.allowed(); err != nil {
		return result, nil, err
	}
	progress(agentv1.ProgressReport{Phase: "boot entry"})
	disks, err := k.cfg.Disks(ctx)
	if err != nil {
		return result, nil, app.Errorf(app.Unavailable, "disks-not-read", "the disks of this machine cannot be listed: %w", err)
	}
	d, err := disk.Match(disks, order.Disk)
	if err != nil {
		return result, nil, err
	}
	m, release, err := k.mountAll(d)
	if err != nil {
		return result, nil, err
	}
	defer func() {
		if e := release(); e != nil && err == nil {
			_ = k.cfg.Drop() // what was loaded must not start by a later reboot; nothing may be loaded, which is as good
			jump, err = nil, app.Errorf(app.Unavailable, "disk-busy", "%s could not be released again: %w", d.Name, e).Do(wayOut)
		}
	}()
	e, err := find(m.parts, k.cfg.Firmware, k.cfg.Log)
	if err != nil {
		return result, nil, err
	}
	if result, err = k.loadEntry(e, order.KernelArgs); err != nil {
		return result, nil, err
	}
	k.cfg.Log.Info("the disk's own kernel is loaded", "entry", e.title, "kernel", e.kernel, "cmdline", result.Cmdline)
	if order.DryRun {
		if err := k.cfg.Drop(); err != nil {
			return result, nil, app.Errorf(app.Unavailable, "kexec-not-unloaded", "the kernel that was loaded for a trial cannot be unloaded: %w", err)
		}
		return result, nil, nil
	}
	return result, k.leave, nil
}

// leave stops what goes on by itself and jumps: a card that still receives would write into the next kernel's memory when
// its driver does not stop it. The ports stay off when the jump fails: what the appliance then hears nothing of, it resets.
func (k *Kexec) leave(context.Context) error {
	for _, err := range k.cfg.Quiet(ports(k.cfg.Sys)) {
		k.cfg.Log.Warn("a network port is not turned off", "error", err)
	}
	return k.cfg.Jump()
}

// loadEntry checks an entry and loads it with args appended.
func (k *Kexec) loadEntry(e entry, args string) (agentv1.KexecResult, error) {
	r := agentv1.KexecResult{Kernel: e.kernel, Initrds: e.initrds, Cmdline: strings.TrimSpace(e.args + " " + args)}
	if !hasRoot(r.Cmdline) {
		return r, app.Errorf(app.Unsupported, "no-root-argument", "the boot entry %q names no root file system, so its kernel would stop", clip(e.title, 80)).Do(wayOut)
	}
	if root := foreignRoot(r.Cmdline); root != "" {
		return r, app.Errorf(app.Unsupported, "root-elsewhere", "the boot entry %q has its root on %s, which only the machine that made the image had", clip(e.title, 80), clip(root, 80)).Do(wayOut)
	}
	if len(r.Cmdline) > maxCmdline {
		return r, app.Errorf(app.Unsupported, "cmdline-too-long", "the command line has %d bytes, a kernel takes %d", len(r.Cmdline), maxCmdline).Do(wayOut)
	}
	kernel, err := copyOut(e.part, []string{e.kernel}, maxKernel)
	if err != nil {
		return r, app.Errorf(app.Unsupported, "kernel-not-read", "the kernel of the default boot entry cannot be read: %w", err).Do(wayOut)
	}
	defer kernel.Close()
	var initrd *os.File
	if len(e.initrds) > 0 {
		if initrd, err = copyOut(e.part, e.initrds, maxInitrd); err != nil {
			return r, app.Errorf(app.Unsupported, "initrd-not-read", "an initial ramdisk of the default boot entry cannot be read: %w", err).Do(wayOut)
		}
		defer initrd.Close()
	}
	if err := k.cfg.Load(kernel, initrd, r.Cmdline); err != nil {
		return r, k.why(err)
	}
	return r, nil
}

// hasRoot reports whether a command line names a root file system.
func hasRoot(cmdline string) bool {
	for _, f := range strings.Fields(cmdline) {
		if v, ok := strings.CutPrefix(f, "root="); ok && v != "" {
			return true
		}
	}
	return false
}

// foreignRoot gives the root file system's device when it is one that images are made on: grub-mkconfig falls back to
// naming it when it could not read the file system's UUID.
func foreignRoot(cmdline string) string {
	for _, f := range strings.Fields(cmdline) {
		v, ok := strings.CutPrefix(f, "root=")
		for _, made := range []string{"/dev/loop", "/dev/mapper/loop", "/dev/nbd"} {
			if ok && strings.HasPrefix(v, made) {
				return v
			}
		}
	}
	return ""
}

// copyOut joins files into one in memory, so that nothing of the disk is in use later. Each but the last is filled up to
// four bytes, which is where the kernel looks for the next archive.
func copyOut(p *partition, names []string, limit int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("boot", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making room in memory: %w", err)
	}
	out := os.NewFile(uintptr(fd), filepath.Base(names[0]))
	var size int64
	for _, name := range names {
		pad := -size & 3
		n, err := copyFile(out, size+pad, p, name, limit-size)
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
		size += pad + n
	}
	// The kernel refuses a file that anybody may still write to (ETXTBSY), so it gets a read-only descriptor.
	in, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", out.Fd()))
	return in, errors.Join(err, out.Close())
}

func copyFile(out *os.File, at int64, p *partition, name string, limit int64) (int64, error) {
	f, err := p.open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !st.Mode().IsRegular() || st.Size() == 0 || st.Size() > limit {
		return 0, fmt.Errorf("%s is no file of 1 to %d bytes", name, limit)
	}
	n, err := io.Copy(io.NewOffsetWriter(out, at), io.LimitReader(f, st.Size()))
	if err == nil && n != st.Size() {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
