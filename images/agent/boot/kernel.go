package boot

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountOptions keep a read-only mount from writing: a journal is not replayed. Of btrfs the top of the tree is mounted,
// which is what GRUB's paths start from.
var mountOptions = map[string]string{"ext4": "noload", "xfs": "norecovery,nouuid", "btrfs": "subvolid=5,rescue=nologreplay"}

func mount(source, target, fstype string) (func() error, error) {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount(source, target, fstype, flags, mountOptions[fstype]); err != nil {
		return nil, fmt.Errorf("mounting %s: %w", source, err)
	}
	return func() error {
		if err := unix.Unmount(target, 0); err != nil {
			return fmt.Errorf("unmounting %s: %w", source, err)
		}
		return nil
	}, nil
}

// room counts what is kept for root as free: a first boot writes as root.
func room(dir string) (free, size int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("asking for the free room: %w", err)
	}
	return int64(s.Bfree) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

func load(kernel, initrd *os.File, cmdline string) error {
	fd, flags := 0, unix.KEXEC_FILE_NO_INITRAMFS
	if initrd != nil {
		fd, flags = int(initrd.Fd()), 0
	}
	if err := unix.KexecFileLoad(int(kernel.Fd()), fd, cmdline, flags); err != nil {
		return fmt.Errorf("loading: %w", err)
	}
	if !loaded() {
		return errors.New("the kernel took it and says that none is loaded")
	}
	return nil
}

func loaded() bool {
	b, err := os.ReadFile("/sys/kernel/kexec_loaded")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

func drop() error { return unix.KexecFileLoad(0, 0, "", unix.KEXEC_FILE_UNLOAD) }

// syncPatience bounds the flush of disks: what was written to ours was read back long before, and another that does not
// answer must not keep the machine.
const syncPatience = 30 * time.Second

// jump flushes the disks and starts the loaded kernel. It returns only when there is none or the kernel refuses. The kernel
// itself stops devices by their drivers on the way.
func jump() error {
	if !loaded() {
		return errors.New("no kernel is loaded")
	}
	done := make(chan struct{})
	go func() { unix.Sync(); close(done) }()
	patience := time.NewTimer(syncPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC); err != nil {
		return fmt.Errorf("jumping into the loaded kernel: %w", err)
	}
	return nil
}
