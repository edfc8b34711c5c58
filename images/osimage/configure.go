package osimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// file is one file of the image that no package brings.
type file struct {
	path, text string
	mode       os.FileMode
}

// cloudConfig keeps cloud-init to what a deployed server needs. A seed may say otherwise.
const cloudConfig = `# Only what a deploy brings is looked for: probing for clouds costs seconds on each boot.
datasource_list: [ NoCloud, None ]
# RSA keys take many seconds of a first boot, and no client of today needs them.
ssh_genkeytypes: [ ed25519, ecdsa ]
ssh: { emit_keys_to_console: false }
# The image is complete in these respects.
grub_dpkg: { enabled: false }
locale: false
`

// files are the image's own settings.
func files(o Options) []file {
	return []file{
		{"etc/fstab", "UUID=" + o.uuid("root") + " / ext4 errors=remount-ro 0 1\n" +
			"UUID=" + o.volumeID()[:4] + "-" + o.volumeID()[4:] + " /boot/efi vfat umask=0077,nofail 0 2\n", 0o644},
		{"etc/hostname", "debian\n", 0o644},
		{"etc/hosts", "127.0.0.1 localhost\n127.0.1.1 debian\n::1 localhost ip6-localhost ip6-loopback\n", 0o644},
		// Empty, not missing: each machine makes its own on its first boot, and that boot counts as the first.
		{"etc/machine-id", "", 0o444},
		{"etc/apt/sources.list", "deb http://deb.debian.org/debian bookworm main\n" +
			"deb http://deb.debian.org/debian bookworm-updates main\n" +
			"deb http://deb.debian.org/debian-security bookworm-security main\n", 0o644},
		{"etc/cloud/cloud.cfg.d/90_bcd.cfg", cloudConfig, 0o644},
		{"etc/systemd/network/90-dhcp.network", "[Match]\nType=ether\n\n[Network]\nDHCP=yes\n", 0o644},
		// One port with an address is online: servers have ports without a cable.
		{"etc/systemd/system/systemd-networkd-wait-online.service.d/any.conf",
			"[Service]\nExecStart=\nExecStart=/lib/systemd/systemd-networkd-wait-online --any --timeout=30\n", 0o644},
		{"etc/default/grub", defaultGrub(o), 0o644},
	}
}

// defaultGrub is what grub-mkconfig reads, now and after each kernel upgrade on the machine.
func defaultGrub(o Options) string {
	cmdline := strings.TrimSpace("console=tty0 console=ttyS0,115200n8 " + o.KernelArgs)
	return `GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_RECORDFAIL_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="` + cmdline + `"
GRUB_TERMINAL="console serial"
GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
GRUB_DISABLE_OS_PROBER=true
`
}

// configure turns a bootstrapped root into one that comes up as a server on any machine.
func configure(ctx context.Context, o Options, root string) error {
	if err := os.MkdirAll(filepath.Join(root, "boot/efi"), 0o755); err != nil {
		return fmt.Errorf("making the mount point of the ESP: %w", err)
	}
	for _, f := range files(o) {
		if err := f.write(root); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"/bin/systemctl", "enable", "systemd-networkd.service", "systemd-resolved.service", "serial-getty@ttyS0.service"},
		{"/bin/systemctl", "disable", "e2scrub_reap.service", "e2scrub_all.timer"}, // for LVM, seconds of each boot
		{"/usr/bin/passwd", "--lock", "root"},
	} {
		if _, err := (command{root: root, args: args}).run(ctx); err != nil {
			return err
		}
	}
	if o.RootPassword != "" {
		// On its standard input: an argument could be read by every process of the host.
		set := command{root: root, args: []string{"/usr/sbin/chpasswd"}, stdin: "root:" + o.RootPassword + "\n"}
		if _, err := set.run(ctx); err != nil {
			return err
		}
	}
	return tidy(root)
}

// write puts a file into root, following no link out of it: what is there is replaced.
func (f file) write(root string) error {
	path := filepath.Join(root, f.path)
	_ = os.Remove(path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(f.text), f.mode)
	}
	if err != nil {
		return fmt.Errorf("writing /%s of the image: %w", f.path, err)
	}
	return nil
}

// tidy takes out what belongs to the build or must differ between machines.
func tidy(root string) error {
	var errs []error
	for _, pattern := range []string{
		"etc/ssh/ssh_host_*", "etc/apt/apt.conf.d/99mmdebstrap", "etc/dpkg/dpkg.cfg.d/99mmdebstrap",
		"var/cache/apt/*.bin", "var/lib/apt/lists/*", "var/lib/systemd/random-seed", "var/log/*.log", "var/log/apt/*", "var/cache/debconf/*-old", "var/lib/dpkg/*-old",
	} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		errs = append(errs, err)
		for _, p := range paths {
			errs = append(errs, os.RemoveAll(p))
		}
	}
	return errors.Join(errs...)
}
