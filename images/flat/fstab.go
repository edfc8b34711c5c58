package flat

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
)

// names are what the parts of the disk are called.
type names struct {
	root  string // UUID of the root file system, lower-case
	label string // of the root file system
	esp   string // serial number of the EFI system partition, "ABCD-1234"
}

const defaultLabel = "root"

// derive gives names that follow from the bytes an image is made of.
func derive(seed []byte) names {
	esp := strings.ToUpper(uuid(seed, "esp"))
	return names{root: uuid(seed, "root"), label: defaultLabel, esp: esp[:4] + "-" + esp[4:8]}
}

// uuid derives a version 8 UUID (RFC 9562).
func uuid(seed []byte, part string) string {
	b := uuidBytes(seed, part)
	h := hex.EncodeToString(b[:])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:32]}, "-")
}

func uuidBytes(seed []byte, part string) (out [16]byte) {
	b := sha256.Sum256(slices.Concat([]byte("bcd flat image\x00"), seed, []byte("\x00"+part)))
	copy(out[:], b[:])
	out[6], out[8] = out[6]&0x0f|0x80, out[8]&0x3f|0x80
	return out
}

var (
	uuidRE  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	fatRE   = regexp.MustCompile(`^[0-9A-F]{4}-[0-9A-F]{4}$`)
	labelRE = regexp.MustCompile(`^[A-Za-z0-9._+-]{1,16}$`)
)

// virtual are the types of file systems that need no disk of their own.
var virtual = []string{"proc", "sysfs", "tmpfs", "devpts", "devtmpfs", "overlay", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "configfs", "bpf",
	"efivarfs", "hugetlbfs", "mqueue", "ramfs", "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "fuse", "fuse.sshfs"}

// fstab makes /etc/fstab name the disk to come. What it calls the root is kept where a file system can be called so, for
// the initial file system and the loader may know it by that name.
func (t *tree) fstab(n names) (names, error) {
	text, readable := t.content("etc/fstab")
	if t.lookup("etc/fstab") != nil && !readable {
		return n, t.refuse("etc/fstab", "bad-fstab", "cannot be read: it is no file of at most %d bytes", maxKept).Do("remove it from the root file system, then one is written")
	}
	var out strings.Builder
	root, esp := false, false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[0], "#") {
			out.WriteString(line)
			continue
		}
		if len(f) < 4 {
			f = append(f, "defaults")
		}
		switch where := f[1]; {
		case where == "/":
			root = true
			out.WriteString(rootLine(&n, f, line))
		case where == "/boot/efi" || where == "/efi":
			esp = true
			out.WriteString(espLine(&n, f, line))
		case needed(f):
			return n, t.lacks(f)
		default:
			out.WriteString(line)
		}
	}
	if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
		out.WriteByte('\n')
	}
	if !root {
		fmt.Fprintf(&out, "UUID=%s / ext4 errors=remount-ro,x-systemd.growfs 0 1\n", n.root)
	}
	if !esp {
		fmt.Fprintf(&out, "UUID=%s /boot/efi vfat umask=0077,nofail 0 2\n", n.esp)
		if err := t.directory("boot/efi", 0o755); err != nil {
			return n, err
		}
	}
	if out.String() == text {
		return n, nil
	}
	return n, t.file("etc/fstab", out.String(), 0o644)
}

// rootLine adopts the name of the root, or writes a line with the name it has.
func rootLine(n *names, f []string, line string) string {
	kind, name, _ := strings.Cut(f[0], "=")
	name = strings.Trim(name, `"`)
	known := false
	switch lower := strings.ToLower(name); {
	case kind == "UUID" && uuidRE.MatchString(lower):
		n.root, known = lower, true
	case kind == "LABEL" && labelRE.MatchString(name):
		n.label, known = name, true
	}
	if known && slices.Contains([]string{"ext4", "ext3", "ext2", "auto"}, f[2]) {
		return line
	}
	return fmt.Sprintf("UUID=%s / ext4 errors=remount-ro,x-systemd.growfs 0 1\n", n.root)
}

// espLine does the same for the EFI system partition.
func espLine(n *names, f []string, line string) string {
	kind, name, _ := strings.Cut(f[0], "=")
	if name = strings.ToUpper(strings.Trim(name, `"`)); kind == "UUID" && fatRE.MatchString(name) {
		n.esp = name
		return line
	}
	return fmt.Sprintf("UUID=%s %s vfat %s 0 2\n", n.esp, f[1], f[3])
}

// needed reports whether a line is of a disk that a boot would wait for.
func needed(f []string) bool {
	options := strings.Split(f[3], ",")
	for _, o := range []string{"nofail", "noauto", "bind", "rbind", "loop"} {
		if slices.Contains(options, o) {
			return false
		}
	}
	if strings.HasPrefix(f[0], "/swap") || f[0] == "none" || slices.Contains(virtual, f[2]) {
		return false
	}
	kind, _, has := strings.Cut(f[0], "=")
	return strings.HasPrefix(f[0], "/dev/") || has && slices.Contains([]string{"UUID", "LABEL", "PARTUUID", "PARTLABEL", "ID"}, kind)
}

func (t *tree) lacks(f []string) error {
	return app.Errorf(app.InvalidInput, "fstab-needs-disk", "the /etc/fstab of image %s has %.100q for %.100q, which the disk to come will not have: the machine would wait for it", t.image, f[0], f[1]).
		Do("take that line out of it, or add the option nofail")
}
