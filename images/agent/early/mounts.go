package early

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mount is one file system that the kernel provides.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

const quietFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// firstMounts come before anything else. Debian's kernel leaves devtmpfs to init.
var firstMounts = []mount{
	{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0755"},
	{"proc", "/proc", "proc", quietFlags, ""},
	{"sysfs", "/sys", "sysfs", quietFlags, ""},
	{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", quietFlags, ""},
}

// efivars is mounted on UEFI machines, once its driver is loaded.
var efivars = mount{"efivarfs", "/sys/firmware/efi/efivars", "efivarfs", quietFlags, ""}

// mountAll mounts each and reports all that failed; one that is mounted already is no failure.
func mountAll(mounts []mount) error {
	var errs []error
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			errs = append(errs, fmt.Errorf("making %s: %w", m.target, err))
			continue
		}
		err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("mounting %s: %w", m.target, err))
		}
	}
	return errors.Join(errs...)
}

// isUEFI tells how the machine's firmware started it.
func isUEFI(sys string) bool {
	_, err := os.Stat(filepath.Join(sys, "firmware/efi"))
	return err == nil
}
