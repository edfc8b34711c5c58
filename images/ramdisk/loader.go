package ramdisk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Loader is a set of boot programs and the language of the scripts they fetch. Another kind, as GRUB for Secure Boot, is
// another value.
type Loader struct {
	Name    string       // "ipxe"
	Dialect string       // of its scripts: "ipxe"
	Files   []LoaderFile // in the order they are looked for
	Part    Part         // where they come from
}

// LoaderFile is one boot program.
type LoaderFile struct {
	Name     string // as it is served: "undionly.kpxe"
	Firmware string // "bios" or "uefi"
	Arch     string // "x86_64"
	Path     string // where it was found
}

// IPXEDir is where Debian's ipxe package puts its programs.
const IPXEDir = "/usr/lib/ipxe"

// ipxeFiles are the programs netboot hands out: through the firmware's own network driver (undionly, snponly), and with
// all of iPXE's drivers for firmware whose driver fails.
var ipxeFiles = []LoaderFile{
	{Name: "undionly.kpxe", Firmware: "bios", Arch: "x86_64"},
	{Name: "snponly.efi", Firmware: "uefi", Arch: "x86_64"},
	{Name: "ipxe.efi", Firmware: "uefi", Arch: "x86_64"},
}

// FindIPXE looks for every iPXE program, in each directory in turn, so that an operator's newer build of one program goes
// before Debian's; without directories it looks in IPXEDir.
func FindIPXE(dirs ...string) (*Loader, error) {
	if len(dirs) == 0 {
		dirs = []string{IPXEDir}
	}
	l := &Loader{Name: "ipxe", Dialect: "ipxe"}
	own := false
	for _, f := range ipxeFiles {
		p, err := findIn(dirs, f.Name)
		if err != nil {
			return nil, err
		}
		own = own || filepath.Dir(p) != IPXEDir
		f.Path = p
		l.Files = append(l.Files, f)
	}
	l.Part = Part{In: InLoader, Name: "ipxe", Version: "as given by the operator", License: "GPL-2.0-or-later", Source: "https://github.com/ipxe/ipxe"}
	if own {
		return l, nil
	}
	l.Part.Version = "unknown"
	if v := installedVersion("/var/lib/dpkg/status", "ipxe"); v != "" {
		l.Part.Version, l.Part.Source = v, "https://snapshot.debian.org/package/ipxe/"+v+"/"
	}
	return l, nil
}

func findIn(dirs []string, name string) (string, error) {
	for _, d := range dirs {
		p := filepath.Join(d, name)
		st, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("looking for %s: %w", name, err)
		}
		if st.Mode().IsRegular() && st.Size() > 0 {
			return p, nil
		}
	}
	return "", app.Errorf(app.InvalidConfig, "loader-missing", "the boot program %s is not in %s", name, strings.Join(dirs, " or ")).
		Do("install Debian's ipxe package, or name the directory of your own build")
}

func (l *Loader) copyTo(dir string) error {
	for _, f := range l.Files {
		if _, err := writeFile(filepath.Join(dir, f.Name), func(w io.Writer) error { return copyFile(w, f.Path) }); err != nil {
			return err
		}
	}
	return nil
}

// installedVersion reads a package's version from dpkg's status file; "" when it is not there.
func installedVersion(status, pkg string) string {
	f, err := os.Open(status)
	if err != nil {
		return ""
	}
	defer f.Close()
	in := false
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, _ := strings.Cut(s.Text(), ": ")
		switch {
		case k == "Package":
			in = v == pkg
		case k == "Version" && in:
			return v
		}
	}
	return ""
}
