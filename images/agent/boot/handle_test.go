package boot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

const diskBytes = 8 << 20

// rig is a disk with an ext4 root in partition 1 and /boot on an XFS of its own in partition 2, and a kernel that records.
type rig struct {
	kexec    *Kexec
	calls    []string
	cmdline  string
	mountErr map[string]error // by partition node
	loadErr  error
	busy     bool
	t        *testing.T
	proc     string
	sys      string
}

func (r *rig) file(root, name, body string) {
	at := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(body), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

func newRig(t *testing.T, cfg string) *rig {
	t.Helper()
	dev := t.TempDir()
	b := make([]byte, diskBytes)
	for i, start := range []uint32{2048, 8192} {
		e := b[446+16*i:]
		e[4] = 0x83
		binary.LittleEndian.PutUint32(e[8:], start)
		binary.LittleEndian.PutUint32(e[12:], 4096)
	}
	b[510], b[511] = 0x55, 0xaa
	ext4 := b[2048*512+1024:]
	binary.LittleEndian.PutUint16(ext4[56:], 0xef53)
	copy(ext4[104:], "\x5f\x8f\x25\xd6\x7d\x3f\x4b\x2e\x9a\x51\x0c\x2d\x3e\x4f\x5a\x6b")
	copy(ext4[0x78:], "rootfs")
	xfs := b[8192*512:]
	copy(xfs, "XFSB")
	copy(xfs[32:], "\x6e\x7d\x8c\x9b\x0a\x1b\x4c\x2d\x8e\x3f\x4a\x5b\x6c\x7d\x8e\x9f")
	copy(xfs[108:], "BOOT")
	if err := os.WriteFile(filepath.Join(dev, "vda"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	trees := map[string]*partition{
		"vda1": tree(t, 1, "", "", map[string]string{"etc/fstab": ""}),
		"vda2": tree(t, 2, "", "", map[string]string{"grub/grub.cfg": cfg, "vmlinuz": "KERNEL", "ucode": "UC", "initrd": "RD"}),
	}
	r := &rig{mountErr: map[string]error{}, t: t, proc: t.TempDir(), sys: t.TempDir()}
	r.kexec = New(Config{
		Disks: func(context.Context) ([]agentv1.Disk, error) {
			return []agentv1.Disk{{Name: "vda", Serial: "OS1", Bytes: diskBytes, SectorSize: 512}}, nil
		},
		Log: quiet, Firmware: "bios", Dev: dev, Proc: r.proc, Sys: r.sys,
		Mount: func(source, target, fstype string) (func() error, error) {
			node := filepath.Base(source)
			if err := r.mountErr[node]; err != nil {
				return nil, err
			}
			r.calls = append(r.calls, "mount "+node+" "+fstype)
			if err := errors.Join(os.Remove(target), os.Symlink(trees[node].dir, target)); err != nil { // stands for the mount
				return nil, err
			}
			return func() error {
				r.calls = append(r.calls, "unmount "+node)
				if r.busy {
					return unix.EBUSY
				}
				return errors.Join(os.Remove(target), os.Mkdir(target, 0o700))
			}, nil
		},
		Load: func(kernel, initrd *os.File, cmdline string) error {
			k, err1 := io.ReadAll(kernel)
			i, err2 := io.ReadAll(initrd)
			r.calls, r.cmdline = append(r.calls, "load "+string(k)+" "+strings.ReplaceAll(string(i), "\x00", ".")), cmdline
			return errors.Join(err1, err2, r.loadErr)
		},
		Drop: func() error { r.calls = append(r.calls, "drop"); return nil },
		Quiet: func(ports []string) []error {
			r.calls = append(r.calls, fmt.Sprint("off ", ports))
			return []error{unix.ENODEV}
		},
		Jump: func() error { r.calls = append(r.calls, "jump"); return nil },
	})
	return r
}

func (r *rig) handle(t *testing.T, order agentv1.Kexec) (agentv1.KexecResult, func(context.Context) error, error) {
	t.Helper()
	b, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	return r.kexec.Handle(t.Context(), agentv1.Command{Kind: agentv1.KindKexecLoad, Payload: b}, func(agentv1.ProgressReport) {})
}

const separate = "search --label --set=root BOOT\nmenuentry a {\n linux /vmlinuz root=LABEL=rootfs ro\n initrd /ucode /initrd\n}\n"

func TestHandle(t *testing.T) {
	r := newRig(t, separate)
	target := agentv1.DiskTarget{Serial: "os1 ", Bytes: diskBytes, SectorSize: 512}
	result, jump, err := r.handle(t, agentv1.Kexec{Disk: target, KernelArgs: "console=ttyS1"})
	if err != nil || result.Cmdline != "root=LABEL=rootfs ro console=ttyS1" || r.cmdline != result.Cmdline {
		t.Fatalf("%+v %v", result, err)
	}
	if got, want := strings.Join(r.calls, ", "), "mount vda1 ext4, mount vda2 xfs, load KERNEL UC..RD, unmount vda2, unmount vda1"; got != want {
		t.Errorf("before the answer: %s", got)
	}
	r.file(r.sys, "class/net/eth0/device", "")
	r.file(r.sys, "class/net/lo/mtu", "")
	if err := jump(t.Context()); err != nil || strings.Join(r.calls[len(r.calls)-2:], ", ") != "off [eth0], jump" {
		t.Errorf("after the answer: %v %v", r.calls, err)
	}
	r = newRig(t, separate)
	if _, jump, err := r.handle(t, agentv1.Kexec{Disk: target, DryRun: true}); err != nil || jump != nil || r.calls[len(r.calls)-3] != "drop" {
		t.Errorf("dry run: %v %v", r.calls, err)
	}
}

func TestHandleRefusals(t *testing.T) {
	good := agentv1.DiskTarget{Serial: "OS1"}
	tests := []struct {
		name, cfg, reason string
		order             agentv1.Kexec
		change            func(*rig)
		wayOut            string
	}{
		{name: "no such disk", cfg: separate, order: agentv1.Kexec{Disk: agentv1.DiskTarget{Serial: "OTHER"}}, reason: "disk-not-found"},
		{name: "arguments that break the line", cfg: separate, order: agentv1.Kexec{Disk: good, KernelArgs: "a\nb"}, reason: "invalid-field"},
		{name: "no root", cfg: "menuentry a { linux /vmlinuz ro; }\n", order: agentv1.Kexec{Disk: good}, reason: "no-root-argument", wayOut: "firmware"},
		{name: "kernel missing", cfg: "menuentry a { linux /none root=/dev/vda1; }\n", order: agentv1.Kexec{Disk: good}, reason: "kernel-not-read", wayOut: "firmware"},
		{name: "initrd missing", cfg: "menuentry a { linux /vmlinuz root=/dev/vda1; initrd /ucode /none; }\n", order: agentv1.Kexec{Disk: good}, reason: "initrd-not-read", wayOut: "firmware"},
		{name: "line too long", cfg: "menuentry a { linux /vmlinuz root=/dev/vda1 " + strings.Repeat("x", 2100) + "; }\n", order: agentv1.Kexec{Disk: good}, reason: "cmdline-too-long", wayOut: "firmware"},
		{name: "boot partition not mountable", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "no-boot-entry", wayOut: "firmware",
			change: func(r *rig) { r.mountErr["vda2"] = unix.ENODEV }},
		{name: "kernel without kexec", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-unsupported", wayOut: "firmware",
			change: func(r *rig) { r.loadErr = unix.ENOSYS }},
		{name: "a signature that is not trusted", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-signature", wayOut: "firmware",
			change: func(r *rig) { r.loadErr = fmt.Errorf("loading: %w", unix.EKEYREJECTED) }},
		{name: "Secure Boot's lockdown", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-lockdown", wayOut: "firmware",
			change: func(r *rig) {
				r.loadErr = unix.EPERM
				r.file(r.sys, "kernel/security/lockdown", "none [integrity] confidentiality\n")
			}},
		{name: "forbidden for another reason", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-forbidden", wayOut: "firmware",
			change: func(r *rig) {
				r.loadErr = unix.EPERM
				r.file(r.sys, "kernel/security/lockdown", "[none] integrity confidentiality\n")
			}},
		{name: "turned off for good", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-disabled", wayOut: "firmware",
			change: func(r *rig) { r.file(r.proc, "sys/kernel/kexec_load_disabled", "1\n") }},
		{name: "no kernel of this kind", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-not-a-kernel", wayOut: "firmware",
			change: func(r *rig) { r.loadErr = unix.ENOEXEC }},
		{name: "no room", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-no-memory", wayOut: "firmware",
			change: func(r *rig) { r.loadErr = unix.EADDRNOTAVAIL }},
		{name: "another error", cfg: separate, order: agentv1.Kexec{Disk: good}, reason: "kexec-refused", wayOut: "firmware",
			change: func(r *rig) { r.loadErr = unix.EIO }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.cfg)
			if tt.change != nil {
				tt.change(r)
			}
			result, jump, err := r.handle(t, tt.order)
			e, ok := app.AsError(err)
			if refused := result.Refused; tt.wayOut != "" && err == nil && refused != nil {
				e, ok = &app.Error{Reason: refused.Reason, WayOut: refused.WayOut, Message: refused.Message}, refused.Message != "" && refused.Code != ""
			}
			if !ok || e.Reason != tt.reason || jump != nil || !strings.Contains(e.WayOut, tt.wayOut) {
				t.Fatalf("%+v %v", result, err)
			}
			if n := strings.Count(strings.Join(r.calls, ","), "unmount"); n != strings.Count(strings.Join(r.calls, ","), "mount v")-n {
				t.Errorf("left mounted: %v", r.calls)
			}
		})
	}
	r := newRig(t, separate)
	r.busy = true
	result, jump, err := r.handle(t, agentv1.Kexec{Disk: good})
	if err != nil || result.Refused == nil || result.Refused.Reason != "disk-busy" || !slices.Contains(r.calls, "drop") {
		t.Errorf("a disk that stays mounted: %+v %v", result, err)
	}
	if jump != nil {
		t.Error("jumping is offered beside a refusal")
	}
}
