package ramdisk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat"
)

// GRUB is the output directory, beside those of the flavours, of the boot loaders that root file systems are given when they
// become disk images.
const GRUB = "grub"

// GRUBDir is where Debian's grub-pc-bin and grub-efi-amd64-bin put what GRUB is made of.
const GRUBDir = "/usr/lib/grub"

// grubPrefix leads both loaders to the third partition of the disk they were loaded from, which is the root of every disk
// that package flat lays out: another disk that carries the same file system cannot be taken for it.
const grubPrefix = "(,gpt3)/boot/grub"

// grubModules are built into both loaders: all that a grub.cfg asks for, since the root need not hold GRUB's own files.
var grubModules = []string{
	"part_gpt", "part_msdos", "ext2", "search", "search_fs_uuid", "search_fs_file", "search_label", "normal", "configfile", "linux", "serial", "terminal", "terminfo",
	"echo", "test", "true", "ls", "cat", "reboot", "halt", "sleep", "probe", "help", "chain", "boot", "eval", "regexp", "loadenv", "minicmd", "keystatus",
	"gzio", "xzio", "lzopio", "all_video", "gfxterm", "gfxmenu", "font",
}

// BuildGRUB writes the loaders and their manifest into a directory. Debian's grub-common, grub-pc-bin and grub-efi-amd64-bin
// must be installed. The same packages give the same bytes.
func BuildGRUB(ctx context.Context, out string) (*Manifest, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("making the output directory: %w", err)
	}
	for _, l := range []struct {
		name, platform string
		extra          []string
	}{{flat.CoreFile, "i386-pc", []string{"biosdisk"}}, {flat.EFIFile, "x86_64-efi", []string{"fat", "efi_gop", "efi_uga"}}} {
		args := append([]string{"-O", l.platform, "-p", grubPrefix, "-o", filepath.Join(out, l.name)}, append(l.extra, grubModules...)...)
		if msg, err := exec.CommandContext(ctx, "grub-mkimage", args...).CombinedOutput(); err != nil {
			return nil, grubMissing(fmt.Errorf("running grub-mkimage for %s: %w: %s", l.platform, err, strings.TrimSpace(string(msg))))
		}
	}
	if _, err := writeFile(filepath.Join(out, flat.BootFile), func(w io.Writer) error { return copyFile(w, filepath.Join(GRUBDir, "i386-pc/boot.img")) }); err != nil {
		return nil, grubMissing(err)
	}
	if _, err := flat.ReadLoaders(os.DirFS(out)); err != nil {
		return nil, err
	}
	m := &Manifest{Format: ManifestFormat, Flavour: GRUB, Parts: []Part{grubPart()}}
	for _, name := range []string{flat.BootFile, flat.CoreFile, flat.EFIFile} {
		f, err := describePath(name, filepath.Join(out, name))
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, f)
	}
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(out, ManifestFile), append(b, '\n'), 0o644); err != nil {
		return nil, fmt.Errorf("writing the manifest: %w", err)
	}
	return m, nil
}

func grubPart() Part {
	p := Part{In: InLoader, Name: "grub2", Version: "unknown", License: "GPL-3.0-or-later", Source: "https://tracker.debian.org/pkg/grub2"}
	if v := installedVersion("/var/lib/dpkg/status", "grub-pc-bin"); v != "" {
		p.Version, p.Source = v, "https://snapshot.debian.org/package/grub2/"+v+"/"
	}
	return p
}

// grubMissing adds the way out to a failure that mostly means missing packages.
func grubMissing(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return app.Errorf(app.InvalidConfig, "grub-missing", "the boot loaders for images cannot be built: %w", err).
		Do("install Debian's grub-common, grub-pc-bin and grub-efi-amd64-bin")
}
