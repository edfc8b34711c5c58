package boot

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelInstall reads what a real kernel-install (systemd; Debian, Fedora, Arch) makes of three kernels on a boot
// partition: the newest comes first, and after it failed all its tries the one before.
func TestKernelInstall(t *testing.T) {
	const plugin = "/usr/lib/kernel/install.d/90-loaderentry.install"
	if _, err := os.Stat(plugin); err != nil || os.Getuid() != 0 {
		t.Skipf("left out: it needs root, to mount a boot partition, and systemd's kernel-install (%v)", err)
	}
	p := tree(t, 1, "AAAA-BBBB", "", nil)
	if err := unix.Mount("tmpfs", p.dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("left out: a boot partition cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(p.dir, 0); err != nil {
			t.Error(err)
		}
	})
	conf, kernel, initrd := t.TempDir(), filepath.Join(t.TempDir(), "vmlinuz"), filepath.Join(t.TempDir(), "initrd.img")
	if err := errors.Join(
		os.WriteFile(filepath.Join(conf, "install.conf"), []byte("layout=bls\n"), 0o644),
		os.WriteFile(filepath.Join(conf, "cmdline"), []byte("root=UUID="+bootUUID+"  ro\nconsole=ttyS0,115200n8\n"), 0o644),
		os.WriteFile(kernel, []byte("kernel"), 0o644), os.WriteFile(initrd, []byte("initrd"), 0o644),
		os.MkdirAll(filepath.Join(p.dir, machineID), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	add := func(version string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "kernel-install", "add", version, kernel, initrd)
		c.Env = []string{
			"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "KERNEL_INSTALL_CONF_ROOT=" + conf, "KERNEL_INSTALL_PLUGINS=" + plugin,
			"BOOT_ROOT=" + p.dir, "MACHINE_ID=" + machineID,
		}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := func(version string) {
		t.Helper()
		e, err := find([]*partition{p}, "uefi", quiet)
		at := "/" + machineID + "/" + version
		if err != nil || e.kernel != at+"/linux" || !slices.Equal(e.initrds, []string{at + "/initrd.img"}) {
			t.Fatalf("%+v %v", e, err)
		}
		if e.args != "root=UUID="+bootUUID+" ro console=ttyS0,115200n8 systemd.machine_id="+machineID {
			t.Errorf("arguments %q", e.args)
		}
	}
	add("6.1.0-9-amd64")
	want("6.1.0-9-amd64")
	add("6.1.0-13-amd64")
	want("6.1.0-13-amd64")
	if err := os.WriteFile(filepath.Join(conf, "tries"), []byte("3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	add("6.12.0-1-amd64")
	want("6.12.0-1-amd64")
	entries := filepath.Join(p.dir, "loader/entries", machineID+"-6.12.0-1-amd64")
	if err := os.Rename(entries+"+3.conf", entries+"+0-3.conf"); err != nil { // as systemd-boot does, try by try
		t.Fatal(err)
	}
	want("6.1.0-13-amd64")
}
