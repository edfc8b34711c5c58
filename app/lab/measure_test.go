package lab

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/virtual"
)

// TestDirectBoot measures a real ramdisk, and tells what the console showed when the line never comes.
func TestDirectBoot(t *testing.T) {
	dir := os.Getenv("BCD_LAB_RAMDISK")
	if dir == "" {
		t.Skip("left out: set BCD_LAB_RAMDISK to a built ramdisk to run it")
	}
	d := Direct{Direct: virtual.Direct{Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initramfs.zst"), Cmdline: "console=ttyS0 rdinit=/init"}}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l, err := DirectBoot(ctx, d, regexp.MustCompile(`Linux version`))
	if err != nil || l.SincePower <= 0 || l.SincePower > 5*time.Minute {
		t.Fatalf("%+v, %v", l, err)
	}
	t.Logf("kernel's first line after %.2f s", l.SincePower.Seconds())
	short, cancelShort := context.WithTimeout(t.Context(), 3*l.SincePower+5*time.Second)
	defer cancelShort()
	if _, err := DirectBoot(short, d, regexp.MustCompile(`never printed`)); err == nil || !strings.Contains(err.Error(), "Linux version") {
		t.Errorf("a line that never comes: %v", err)
	}
}
