package ext4

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernel has this machine's kernel mount the file system, write to it, and grow it while it is mounted.
func TestKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: mounting needs root")
	}
	for _, tool := range []string{"losetup", "mount", "umount", "e2fsck", "resize2fs"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("left out: %v (install mount and e2fsprogs)", err)
		}
	}
	fs, err := Plan(variety(), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, fs, nil)
	if err := os.Truncate(path, 12<<30); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	out, err := exec.Command("losetup", "--find", "--show", path).CombinedOutput()
	if err != nil {
		t.Skipf("left out: no loop device: %v: %s", err, out)
	}
	loop := strings.TrimSpace(string(out))
	defer exec.Command("losetup", "--detach", loop).Run()
	at := t.TempDir()
	run("mount", "-t", "ext4", loop, at)
	mounted := true
	defer func() {
		if mounted {
			exec.Command("umount", at).Run()
		}
	}()
	if b, err := os.ReadFile(filepath.Join(at, "etc/two")); err != nil || string(b) != "linked\n" {
		t.Errorf("%q, %v", b, err)
	}
	if list, err := os.ReadDir(filepath.Join(at, "many")); err != nil || len(list) != 3000 {
		t.Errorf("%d names, %v", len(list), err)
	}
	online := true
	if out, err := exec.Command("resize2fs", loop).CombinedOutput(); err != nil {
		if online = !strings.Contains(string(out), "Permission denied"); online {
			t.Fatalf("resize2fs: %v\n%s", err, out)
		}
		t.Log("growth while mounted is left out: it needs CAP_SYS_RESOURCE")
	}
	if err := os.WriteFile(filepath.Join(at, "many/new"), make([]byte, 20<<20), 0o600); err != nil {
		t.Error(err)
	}
	for n := range 100 {
		if err := os.Mkdir(filepath.Join(at, "many", strings.Repeat("d", n+1)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run("umount", at)
	mounted = false
	if !online {
		run("e2fsck", "-fy", path)
		run("resize2fs", path)
	}
	fsck(t, path)
	if out := debugfs(t, path, "stats"); !strings.Contains(out, "Block count:              3145728") {
		t.Errorf("not grown to 12 GiB:\n%.2000s", out)
	}
}
