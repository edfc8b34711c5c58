package osimage

import (
	"context"
	"strings"
)

// base is what every image holds besides Debian's minimal system and a kernel.
var base = []string{
	"initramfs-tools", "zstd", "systemd-sysv", "udev", "dbus", "login", "passwd", "kmod", "iproute2", "iputils-ping", "netbase",
	"ca-certificates", "systemd-resolved", "sudo", "e2fsprogs", "fdisk", "dosfstools",
	"grub2-common", "grub-pc-bin", "grub-efi-amd64-bin",
	"cloud-init", "cloud-guest-utils", "openssh-server",
}

// kernelPackage names the package that always depends on the newest kernel of its kind.
func (k Kernel) kernelPackage() string {
	if k == Generic {
		return "linux-image-amd64"
	}
	return "linux-image-cloud-amd64"
}

// bootstrap makes the root file system.
func bootstrap(ctx context.Context, o Options, root string) error {
	packages := append(append([]string{o.Kernel.kernelPackage()}, base...), o.Packages...)
	args := []string{
		"mmdebstrap", "--mode=root", "--variant=minbase", "--include=" + strings.Join(packages, ","),
		`--aptopt=APT::Install-Recommends "false"`,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
		"bookworm", root,
	}
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	_, err := command{args: args}.run(ctx)
	return err
}
