package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// PartitionNode names a partition as the kernel does: sda and 1 give sda1, nvme0n1 and 1 give nvme0n1p1.
func PartitionNode(disk string, n int) string {
	if c := disk[len(disk)-1]; c >= '0' && c <= '9' {
		return disk + "p" + strconv.Itoa(n)
	}
	return disk + strconv.Itoa(n)
}

// bootDirs are where, below a partition's root, a /boot may be: the partition is /boot or the ESP itself, holds / , or
// holds btrfs subvolumes as openSUSE, Ubuntu ("@") and Fedora ("root") name them.
var bootDirs = []string{"", "boot", "@/boot", "root/boot", "boot/efi"}

// maxConfig bounds a boot configuration, in bytes.
const maxConfig = 4 << 20

// editLoader adds kernel arguments to every boot entry below dir and tells how many it found. An entry that has them
// already counts and stays. dir is never left: symbolic links that lead out of it are errors of the image.
func editLoader(dir, args string) (entries int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	for _, boot := range bootDirs {
		for _, f := range []struct {
			glob string
			edit func(string, string) (string, int)
		}{
			{"grub/grub.cfg", grubArgs}, {"grub2/grub.cfg", grubArgs}, {"EFI/*/grub.cfg", grubArgs},
			{"loader/entries/*.conf", blsArgs}, {"extlinux/extlinux.conf", extlinuxArgs}, {"syslinux/syslinux.cfg", extlinuxArgs},
		} {
			names, err := fs.Glob(root.FS(), path.Join(boot, f.glob))
			if err != nil {
				return entries, err
			}
			for _, name := range names {
				n, err := editFile(root, name, func(s string) (string, int) { return f.edit(s, args) })
				if err != nil {
					return entries, fmt.Errorf("editing %s: %w", name, err)
				}
				entries += n
			}
		}
	}
	for _, etc := range []string{"etc", "@/etc", "root/etc"} {
		if err := keepArgs(root, etc, args); err != nil {
			return entries, err
		}
	}
	return entries, nil
}

// keepArgs makes later updates of the boot configuration keep the arguments.
func keepArgs(root *os.Root, etc, args string) error {
	_, err := editFile(root, path.Join(etc, "kernel/cmdline"), func(s string) (string, int) {
		return appendOnce(strings.TrimRight(s, "\n"), args) + "\n", 1
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	line := `GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ` + shellDouble(args) + "\"\n"
	if info, err := root.Stat(path.Join(etc, "default/grub.d")); err == nil && info.IsDir() {
		text := "# Kernel arguments given with the deployment of this machine.\n" + line
		return replace(root, path.Join(etc, "default/grub.d/99-bcd.cfg"), []byte(text), 0o644, -1, -1)
	}
	_, err = editFile(root, path.Join(etc, "default/grub"), func(s string) (string, int) {
		if strings.Contains(s, line) {
			return s, 1
		}
		return strings.TrimRight(s, "\n") + "\n" + line, 1
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// shellDouble escapes text for a place between double quotes in sh.
func shellDouble(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(s)
}

func appendOnce(line, args string) string {
	if strings.HasSuffix(line, " "+args) || line == args {
		return line
	}
	return strings.TrimRight(line, " \t") + " " + args
}

// grubArgs edits the linux lines of a grub.cfg, but not those that start a memory test.
func grubArgs(cfg, args string) (string, int) {
	quoted := grubQuote(args)
	return editLines(cfg, func(word, rest string) bool {
		return (word == "linux" || word == "linuxefi" || word == "linux16") && (strings.Contains(rest, "root=") || strings.Contains(rest, "vmlinu"))
	}, quoted)
}

// blsArgs edits the options of a Boot Loader Specification entry.
func blsArgs(cfg, args string) (string, int) {
	return editLines(cfg, func(word, _ string) bool { return word == "options" }, args)
}

// extlinuxArgs edits the append lines of extlinux and syslinux.
func extlinuxArgs(cfg, args string) (string, int) {
	return editLines(cfg, func(word, _ string) bool { return strings.EqualFold(word, "append") }, args)
}

// editLines appends args to each line whose first word and rest are taken.
func editLines(cfg string, takes func(word, rest string) bool, args string) (string, int) {
	var out strings.Builder
	n := 0
	for line := range strings.Lines(cfg) {
		body := strings.TrimRight(line, "\r\n")
		f := strings.Fields(body)
		if len(f) > 1 && takes(f[0], body) {
			n++
			line = appendOnce(body, args) + line[len(body):]
		}
		out.WriteString(line)
	}
	return out.String(), n
}

// grubQuote quotes each argument for GRUB's script language, where ";" ends a command and "$" expands.
func grubQuote(args string) string {
	var out []string
	for _, a := range splitArgs(args) {
		if strings.ContainsAny(a, ";&|<>$\"'\\{}()#`*?[]~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

// splitArgs splits a kernel command line at spaces outside double quotes, as the kernel does.
func splitArgs(s string) (out []string) {
	start, quoted := -1, false
	for i, c := range s {
		switch {
		case c == ' ' && !quoted:
			if start >= 0 {
				out = append(out, s[start:i])
			}
			start = -1
			continue
		case c == '"':
			quoted = !quoted
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		out = append(out, s[start:])
	}
	return out
}

// follow resolves symbolic links, so that a link stays one and what it leads to is replaced.
func follow(root *os.Root, name string) (string, error) {
	for range 8 {
		to, err := root.Readlink(name)
		if err != nil { // not a link, or not there
			return name, nil
		}
		if path.IsAbs(to) {
			return "", fmt.Errorf("%s leads to %s, out of its file system", name, to)
		}
		name = path.Join(path.Dir(name), to)
	}
	return "", fmt.Errorf("%s: too many symbolic links", name)
}

// editFile rewrites a file in place of itself, with its mode and owner, when edit changes it.
func editFile(root *os.Root, name string, edit func(string) (string, int)) (int, error) {
	name, err := follow(root, name)
	if err != nil {
		return 0, err
	}
	f, err := root.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return 0, err
	}
	if len(b) > maxConfig {
		return 0, fmt.Errorf("it is larger than %d bytes", maxConfig)
	}
	text, n := edit(string(b))
	if text == string(b) {
		return n, nil
	}
	uid, gid := -1, -1
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		uid, gid = int(s.Uid), int(s.Gid)
	}
	return n, replace(root, name, []byte(text), info.Mode().Perm(), uid, gid)
}

// replace writes a file beside its place and renames it there: after a power cut it is the old or the new one. A symbolic
// link there is replaced itself.
func replace(root *os.Root, name string, b []byte, mode fs.FileMode, uid, gid int) error {
	tmp := name + ".bcd-new"
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	if uid >= 0 {
		if err := root.Chown(tmp, uid, gid); err != nil && !errors.Is(err, syscall.EPERM) { // vfat has no owners
			return errors.Join(err, root.Remove(tmp))
		}
	}
	if err := root.Rename(tmp, name); err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	d, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
