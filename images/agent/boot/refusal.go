package boot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
)

// allowed refuses early what the running kernel has turned off (Linux, Documentation/admin-guide/sysctl/kernel.rst and
// kernel_lockdown(7)).
func (k *Kexec) allowed() error {
	if b, err := os.ReadFile(filepath.Join(k.cfg.Proc, "sys/kernel/kexec_load_disabled")); err == nil && strings.TrimSpace(string(b)) == "1" {
		return app.Errorf(app.Unsupported, "kexec-disabled", "the ramdisk's kernel has kexec turned off (kernel.kexec_load_disabled)").Do(wayOut)
	}
	return nil
}

// lockdown is the mode that the kernel is locked down in, "" for none.
func (k *Kexec) lockdown() string {
	b, err := os.ReadFile(filepath.Join(k.cfg.Sys, "kernel/security/lockdown"))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), "[")
	mode, _, _ := strings.Cut(rest, "]")
	if mode == "none" {
		return ""
	}
	return mode
}

// why names what stands behind a refusal of kexec_file_load(2).
func (k *Kexec) why(err error) error {
	reason, what := "kexec-refused", "this machine's kernel does not load the one on the disk"
	mode := k.lockdown()
	switch {
	case errors.Is(err, unix.EKEYREJECTED), errors.Is(err, unix.ENOKEY), errors.Is(err, unix.EBADMSG), errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOPKG):
		reason, what = "kexec-signature", "the kernel on the disk is not signed with a key that this machine's firmware and kernel trust"
	case errors.Is(err, unix.EPERM) && mode != "":
		reason, what = "kexec-lockdown", "the ramdisk's kernel is locked down ("+clip(mode, 40)+"), as Secure Boot asks, and loads no kernel that it cannot verify"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		reason, what = "kexec-forbidden", "the ramdisk's kernel does not permit kexec"
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		reason, what = "kexec-unsupported", "the ramdisk's kernel was built without kexec"
	case errors.Is(err, unix.ENOEXEC):
		reason, what = "kexec-not-a-kernel", "the kernel on the disk is in a form that this machine's kernel cannot load"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EADDRNOTAVAIL):
		reason, what = "kexec-no-memory", "there is no room in memory for the kernel on the disk beside the ramdisk"
	case errors.Is(err, unix.EBUSY):
		reason, what = "kexec-busy", "another kernel is being loaded"
	}
	return app.Errorf(app.Unsupported, reason, "%s: %w", what, err).Do(wayOut)
}

// ports lists the network ports with a device behind them.
func ports(sys string) []string {
	all, err := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	if err != nil {
		return nil
	}
	for i := range all {
		all[i] = filepath.Base(filepath.Dir(all[i]))
	}
	return all
}

// portsDown turns network ports off, by which their drivers stop receiving.
func portsDown(ports []string) (errs []error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return []error{fmt.Errorf("opening a socket: %w", err)}
	}
	defer unix.Close(fd)
	for _, name := range ports {
		if err := portDown(fd, name); err != nil {
			errs = append(errs, fmt.Errorf("turning %s off: %w", name, err))
		}
	}
	return errs
}

func portDown(fd int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() &^ unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
