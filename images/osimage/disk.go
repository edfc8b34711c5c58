package osimage

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The disk's layout, in sectors of 512 octets. The root is last and ends before the backup table's MiB.
const (
	mib = 1 << 20 / sector

	biosStart   = 1 * mib
	biosSectors = 1 * mib
	espStart    = biosStart + biosSectors
	espSectors  = 64 * mib // FAT32 needs more than 33 MiB
	rootStart   = espStart + espSectors
	tailSectors = 1 * mib
)

// layout is the partition table as sfdisk reads it.
func layout(o Options) string {
	part := func(n int, start, size int64, kind, name string) string {
		return fmt.Sprintf("start=%d, size=%d, type=%s, uuid=%s, name=%q\n", start, size, kind, o.uuid(fmt.Sprintf("%s partition", name)), name)
	}
	return fmt.Sprintf("label: gpt\nlabel-id: %s\nfirst-lba: 2048\n", o.uuid("table")) +
		part(1, biosStart, biosSectors, "21686148-6449-6E6F-744E-656564454649", "bios") +
		part(2, espStart, espSectors, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "esp") +
		part(3, rootStart, rootSectors(o), "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "root") // Linux root, x86-64
}

func rootSectors(o Options) int64 { return int64(o.MiB)*mib - rootStart - tailSectors }

// assemble makes the disk image at path from a root file system and the loaders.
func assemble(ctx context.Context, o Options, path, root string, l loaders) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("creating the image: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(int64(o.MiB) * mib * sector); err != nil {
		return fmt.Errorf("sizing the image: %w", err)
	}
	if _, err := (command{args: []string{"sfdisk", "--quiet", "--no-tell-kernel", path}, stdin: layout(o)}).run(ctx); err != nil {
		return err
	}
	if err := makeESP(ctx, o, path, l.efi); err != nil {
		return err
	}
	if err := makeRoot(ctx, o, path, root); err != nil {
		return err
	}
	if err := embed(f, l.boot, l.core, biosStart, biosSectors); err != nil {
		return err
	}
	return f.Sync()
}

// makeESP makes the EFI system partition with the loader at the removable-media path, which needs no boot variable.
func makeESP(ctx context.Context, o Options, path string, efi []byte) error {
	loader := path + ".efi"
	if err := os.WriteFile(loader, efi, 0o600); err != nil {
		return fmt.Errorf("writing the EFI loader: %w", err)
	}
	defer os.Remove(loader)
	at := fmt.Sprintf("%s@@%d", path, int64(espStart)*sector)
	for _, args := range [][]string{
		// --invariant sets a serial number of its own, so that -i must follow it.
		{"mkfs.vfat", "--invariant", "-F", "32", "-s", "1", "-i", o.volumeID(), "-n", "ESP", "--offset", strconv.Itoa(espStart), path, strconv.Itoa(espSectors / 2)},
		{"mmd", "-i", at, "::/EFI", "::/EFI/BOOT"},
		{"mcopy", "-i", at, loader, "::/EFI/BOOT/BOOTX64.EFI"},
	} {
		if _, err := (command{args: args, env: []string{"MTOOLS_SKIP_CHECK=1"}}).run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// makeRoot makes the root file system in place. Features that GRUB 2.06 cannot read are off.
func makeRoot(ctx context.Context, o Options, path, root string) error {
	args := []string{
		"mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "1", "-L", "root", "-U", o.uuid("root"), "-O", "^metadata_csum_seed,^orphan_file",
		"-E", fmt.Sprintf("offset=%d,hash_seed=%s,root_owner=0:0,lazy_itable_init=1", int64(rootStart)*sector, o.uuid("hash")),
		"-d", root, path, strconv.FormatInt(rootSectors(o)/2, 10) + "k",
	}
	_, err := command{args: args}.run(ctx)
	return err
}

// allocated is how many octets of a file are on disk.
func allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("measuring the image: %w", err)
	}
	return st.Blocks * 512, nil
}
