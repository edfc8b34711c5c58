package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// loop makes a loop device of a file full of 0xA5, with the given logical sector size.
func loop(t *testing.T, size int64, sector int) (dev, file string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	file = filepath.Join(t.TempDir(), "disk")
	dirty(t, file, size)
	out, err := exec.Command("losetup", "--find", "--show", "-b", strconv.Itoa(sector), file).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device with sectors of %d bytes: %s", sector, out)
	}
	dev = strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", dev).Run() })
	return dev, file
}

// TestBlockDevice writes to real block devices of both sector sizes: cases 85 and 89 with the kernel's own answers.
func TestBlockDevice(t *testing.T) {
	s := newSite(t, testRaw(7, 9_000_001))
	for _, sector := range []int{512, 4096} {
		dev, file := loop(t, 16<<20, sector)
		d := agentv1.Disk{Name: filepath.Base(dev), Serial: "L1", Bytes: 16 << 20, SectorSize: sector}
		r := newRig(t, s)
		r.disks, r.cfg.DevDir = []agentv1.Disk{d}, "/dev"
		o := s.order(d)
		o.SectorSize = 512 + 4096 - sector
		if _, err := r.Write(context.Background(), o, quiet); reason(err) != "sector-size-mismatch" || !strings.Contains(err.Error(), "512") || !strings.Contains(err.Error(), "4096") {
			t.Errorf("sector %d: the other size gives %v", sector, err)
		}
		if got, _ := os.ReadFile(file); len(bytes.Trim(got, "\xA5")) != 0 {
			t.Errorf("sector %d: a refused disk was written to", sector)
		}
		o.SectorSize = sector
		if _, err := r.Write(context.Background(), o, quiet); err != nil {
			t.Fatalf("sector %d: %v", sector, err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checkWritten(t, got, s.raw, sector)
	}
}

// TestInUse: a mounted disk is refused, and the message says where it is mounted.
func TestInUse(t *testing.T) {
	dev, file := loop(t, 16<<20, 512)
	run(t, "", "mke2fs", "-q", "-F", "-t", "ext4", dev)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "ext4", dev, dir).CombinedOutput(); err != nil {
		t.Skipf("ext4 cannot be mounted here: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	if _, err := Open(dev); !errors.Is(err, ErrInUse) {
		t.Errorf("Open gives %v", err)
	}
	s := newSite(t, testRaw(7, 1<<20))
	d := agentv1.Disk{Name: filepath.Base(dev), Serial: "L1", Bytes: 16 << 20, SectorSize: 512}
	r := newRig(t, s)
	r.disks, r.cfg.DevDir, r.cfg.Mounts = []agentv1.Disk{d}, "/dev", "/proc/mounts"
	before, _ := os.ReadFile(file)
	_, err := r.Write(context.Background(), s.order(d), quiet)
	if reason(err) != "disk-in-use" || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("a mounted disk was written to")
	}
}
