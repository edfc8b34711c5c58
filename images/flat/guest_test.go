package flat

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/child"
	bmc "github.com/better-compute/bcd/bmc/virtual"
)

// guestTime is what a guest without hardware help may take to its login prompt on a busy machine.
const guestTime = 8 * time.Minute

// unneeded is what a boot to the login prompt does without: services that take longer than all else where a processor is
// emulated (cloud-init looks for a seed, the network for a lease), and the largest files that nothing then reads.
var unneeded = []string{
	"./usr/lib/systemd/system-generators/cloud-init-generator", "./usr/lib/systemd/system/systemd-hwdb-update.service",
	"./etc/systemd/system/multi-user.target.wants", "./etc/systemd/system/network-online.target.wants", "./etc/systemd/system/sysinit.target.wants",
	"./etc/systemd/system/sockets.target.wants", "./etc/systemd/system/timers.target.wants",
	"./usr/lib/python3*", "./usr/lib/grub", "./usr/share/doc", "./usr/share/i18n", "./usr/share/perl",
}

// debian packs the root of the image that the lab deploys, without what exclude names, or skips.
func debian(t *testing.T, exclude ...string) string {
	t.Helper()
	images, _ := filepath.Glob("../../.cache/lab/images/*/image.raw")
	switch {
	case testing.Short():
		t.Skip("left out: boots a machine")
	case os.Geteuid() != 0:
		t.Skip("left out: packing a root file system needs root")
	case len(images) == 0:
		t.Skip("left out: no OS image was built: make lab builds one")
	}
	at := t.TempDir()
	if out, err := exec.Command("mount", "-o", "ro,loop,offset=69206016", images[0], at).CombinedOutput(); err != nil {
		t.Skipf("left out: the OS image cannot be mounted: %v: %s", err, out)
	}
	defer exec.Command("umount", at).Run()
	path := filepath.Join(t.TempDir(), "rootfs.tar")
	args := []string{"-C", at, "--numeric-owner", "--xattrs", "--xattrs-include=*", "-cf", path, "."}
	for _, e := range append(exclude, unneeded...) {
		args = append([]string{"--exclude=" + e}, args...)
	}
	if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return path
}

// disk makes a disk of an archive with the real loaders, or skips.
func disk(t *testing.T, archive string) string {
	t.Helper()
	loaders, err := ReadLoaders(os.DirFS("../ramdisk/embed/dist/grub"))
	if err != nil {
		t.Skipf("left out: %v (make ramdisk builds them)", err)
	}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	s, err := Open(t.Context(), "debian", f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	seed := sha256.Sum256([]byte(t.Name()))
	d, err := New(t.Context(), Config{Image: "debian", Layers: s.Layers, Seed: seed[:], Delivered: info.Size(), MaxDisk: 1 << 40, Loaders: loaders})
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, d)
	t.Logf("%d bytes of tar became a disk of %d in %s", info.Size(), d.Size(), time.Since(begun))
	return path
}

// boot starts a machine from a disk and waits for what its console says.
func boot(t *testing.T, path string, firmware []string, want string) {
	t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("left out: QEMU is not installed: apt-get install qemu-system-x86")
	}
	ctx, cancel := context.WithTimeout(t.Context(), guestTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{"-cpu", bmc.Processor, "-M", "q35", "-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-monitor", "none", "-serial", "stdio", "-nic", "user,model=virtio-net-pci",
		"-drive", "if=none,id=os,format=raw,file=" + path, "-device", "virtio-blk-pci,drive=os"}, firmware...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	var seen bytes.Buffer
	for r := bufio.NewReader(out); ; {
		c, err := r.ReadByte()
		if err != nil {
			t.Fatalf("the console ended without %q: %v\n%s", want, err, seen.Bytes())
		}
		if os.Getenv("BCD_TEST_CONSOLE") != "" {
			fmt.Fprintf(os.Stderr, "%c", c)
		}
		seen.WriteByte(c)
		if strings.HasSuffix(seen.String()[max(0, seen.Len()-100):], want) {
			t.Logf("%q after %s", want, time.Since(begun))
			return
		}
	}
}

// TestGuestBIOS boots a root that has neither fstab nor boot configuration, from a disk that is larger than the image and
// whose last partition was grown, as a deploy does, and finds the file system grown.
func TestGuestBIOS(t *testing.T) {
	path := disk(t, debian(t, "./boot/grub", "./etc/fstab"))
	check(t, path)
	size := blocks(t, path)
	if err := os.Truncate(path, 12<<30); err != nil {
		t.Fatal(err)
	}
	grow := exec.Command("sfdisk", "--no-tell-kernel", "-N", "3", path)
	grow.Stdin = strings.NewReader(", +\n")
	if out, err := grow.CombinedOutput(); err != nil {
		t.Fatalf("sfdisk: %v\n%s", err, out)
	}
	boot(t, path, nil, "login: ")
	if grown := blocks(t, path); grown < 11<<30/4096 {
		t.Errorf("the root had %d blocks and has %d", size, grown)
	}
}

// TestGuestUEFI boots a root with its own fstab and the boot configuration that grub-mkconfig wrote for it.
func TestGuestUEFI(t *testing.T) {
	const code, vars = "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"
	b, err := os.ReadFile(vars)
	if err != nil {
		t.Skipf("left out: %v (apt-get install ovmf)", err)
	}
	own := filepath.Join(t.TempDir(), "vars.fd")
	if err := os.WriteFile(own, b, 0o600); err != nil {
		t.Fatal(err)
	}
	path := disk(t, debian(t))
	check(t, path)
	if cfg := cat(t, path, "/boot/grub/grub.cfg"); !strings.Contains(cfg, "grub-mkconfig") {
		t.Error("the system's own boot configuration was replaced")
	}
	boot(t, path, []string{"-drive", "if=pflash,format=raw,readonly=on,file=" + code, "-drive", "if=pflash,format=raw,file=" + own}, "login: ")
}

// blocks is how many blocks the root's superblock counts.
func blocks(t *testing.T, path string) uint32 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, rootStart*sector+1024+4); err != nil {
		t.Fatal(err)
	}
	return le.Uint32(b)
}
