package osimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// loaders are the parts of GRUB that live outside the root file system.
type loaders struct {
	boot []byte // boot.img, for the MBR
	core []byte // core.img, for the BIOS boot partition
	efi  []byte // for /EFI/BOOT/BOOTX64.EFI
}

// grubModules are built into both loaders: enough to find the root file system and its grub.cfg, and to talk on a serial
// port when that fails. The rest is loaded from /boot/grub.
var grubModules = []string{"part_gpt", "ext2", "search", "search_fs_uuid", "normal", "configfile", "linux", "serial", "terminal", "echo", "test", "ls", "cat", "reboot", "halt"}

// installGRUB puts GRUB's modules and grub.cfg into root and builds the loaders, with the image's own GRUB.
func installGRUB(ctx context.Context, o Options, root string) (loaders, error) {
	early := file{"tmp/early.cfg", "search.fs_uuid " + o.uuid("root") + " root\nset prefix=($root)/boot/grub\n", 0o600}
	if err := early.write(root); err != nil {
		return loaders{}, err
	}
	defer os.Remove(filepath.Join(root, early.path))
	var out loaders
	var err error
	for _, l := range []struct {
		platform string
		extra    []string
		into     *[]byte
	}{
		{"i386-pc", []string{"biosdisk"}, &out.core},
		{"x86_64-efi", []string{"fat", "efi_gop", "efi_uga"}, &out.efi},
	} {
		if err := copyModules(root, l.platform); err != nil {
			return loaders{}, err
		}
		if *l.into, err = mkimage(ctx, root, l.platform, append(l.extra, grubModules...)); err != nil {
			return loaders{}, err
		}
	}
	if out.boot, err = os.ReadFile(filepath.Join(root, "usr/lib/grub/i386-pc/boot.img")); err != nil {
		return loaders{}, fmt.Errorf("reading GRUB's boot sector: %w", err)
	}
	return out, mkconfig(ctx, o, root)
}

// mkimage builds one loader.
func mkimage(ctx context.Context, root, platform string, modules []string) ([]byte, error) {
	const out = "/tmp/loader"
	args := append([]string{"/usr/bin/grub-mkimage", "-O", platform, "-o", out, "-p", "/boot/grub", "-c", "/tmp/early.cfg"}, modules...)
	if _, err := (command{root: root, args: args}).run(ctx); err != nil {
		return nil, err
	}
	defer os.Remove(filepath.Join(root, out))
	return os.ReadFile(filepath.Join(root, out))
}

// copyModules does what grub-install does: the modules grub.cfg may load lie beside it.
func copyModules(root, platform string) error {
	from, to := filepath.Join(root, "usr/lib/grub", platform), filepath.Join(root, "boot/grub", platform)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", to, err)
	}
	var errs []error
	for _, pattern := range []string{"*.mod", "*.lst"} {
		names, err := filepath.Glob(filepath.Join(from, pattern))
		errs = append(errs, err)
		for _, name := range names {
			b, err := os.ReadFile(name)
			errs = append(errs, err, os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o644))
		}
	}
	return errors.Join(errs...)
}

// probe answers grub-mkconfig's questions about the disk, which does not exist yet: a root on ext4 in a GPT.
const probe = `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	--target=*) target=${1#--target=} ;;
	-t|--target) shift; target=$1 ;;
	esac
	shift
done
case $target in
device) echo /dev/vda3 ;;
fs) echo ext2 ;;
fs_uuid) echo @UUID@ ;;
partuuid) echo @PARTUUID@ ;;
partmap) echo gpt ;;
drive) echo '(hd0,gpt3)' ;;
compatibility_hint) echo hd0,gpt3 ;;
esac
`

// mkconfig writes grub.cfg with Debian's own scripts, so that it looks as it will after the machine's next kernel upgrade.
// For that time the image's grub-probe gives way to one that knows the disk to come.
func mkconfig(ctx context.Context, o Options, root string) (err error) {
	probePath := filepath.Join(root, "usr/sbin/grub-probe")
	if err := os.Rename(probePath, probePath+".real"); err != nil {
		return fmt.Errorf("putting grub-probe aside: %w", err)
	}
	defer func() { err = errors.Join(err, os.Rename(probePath+".real", probePath)) }()
	text := strings.NewReplacer("@UUID@", o.uuid("root"), "@PARTUUID@", o.uuid("root partition")).Replace(probe)
	if err := os.WriteFile(probePath, []byte(text), 0o755); err != nil {
		return fmt.Errorf("writing grub-probe: %w", err)
	}
	// The scripts use root=UUID=… only when the link is there.
	links := filepath.Join(root, "dev/disk")
	link := file{"dev/disk/by-uuid/" + o.uuid("root"), "", 0o600}
	if err := link.write(root); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(links)) }()
	if _, err := (command{root: root, args: []string{"/usr/sbin/grub-mkconfig", "-o", "/boot/grub/grub.cfg"}}).run(ctx); err != nil {
		return err
	}
	cfg, err := os.ReadFile(filepath.Join(root, "boot/grub/grub.cfg"))
	if err != nil {
		return fmt.Errorf("reading back grub.cfg: %w", err)
	}
	if !strings.Contains(string(cfg), "root=UUID="+o.uuid("root")) {
		return errors.New("grub-mkconfig wrote no entry with the root file system's UUID")
	}
	return nil
}
