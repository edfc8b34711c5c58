package ramdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
)

// StubDir is where Debian's systemd-boot-efi package puts its stubs.
const StubDir = "/usr/lib/systemd/boot/efi"

// maxStub bounds a stub, bytes.
const maxStub = 4 << 20

// Stub is systemd's UEFI stub, the program part of a unified kernel image: with kernel and initramfs it boots UEFI machines
// without a loader.
type Stub struct {
	Binary []byte
	Part   Part
}

// FindStub looks for the stub in each directory in turn; without directories it looks in StubDir.
func FindStub(dirs ...string) (*Stub, error) {
	if len(dirs) == 0 {
		dirs = []string{StubDir}
	}
	for _, d := range dirs {
		f, err := os.Open(filepath.Join(d, StubFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening the UEFI stub: %w", err)
		}
		s := &Stub{Part: Part{In: InLoader, Name: "systemd-stub", Version: "as given by the operator", License: "LGPL-2.1-or-later", Source: "https://github.com/systemd/systemd"}}
		if v := installedVersion("/var/lib/dpkg/status", "systemd-boot-efi"); d == StubDir && v != "" {
			s.Part.Version, s.Part.Source = v, "https://snapshot.debian.org/package/systemd/"+v+"/"
		}
		s.Binary, err = readAll(StubFile, f, maxStub)
		return s, errors.Join(err, f.Close(), s.check())
	}
	return nil, app.Errorf(app.InvalidConfig, "stub-missing", "the UEFI stub %s is not in %s", StubFile, strings.Join(dirs, " or ")).
		Do("install Debian's systemd-boot-efi package, or name the directory of your own build")
}

// StubFrom takes the stub out of an earlier output directory, as the one built into bcd.
func StubFrom(dir fs.FS) (*Stub, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	s := &Stub{}
	if s.Binary, err = fs.ReadFile(dir, StubFile); err != nil {
		return nil, fmt.Errorf("reading the UEFI stub: %w", err)
	}
	for _, p := range m.Parts {
		if p.In == InLoader && p.Name == "systemd-stub" {
			s.Part = p
		}
	}
	return s, s.check()
}

// check refuses what is no EFI program.
func (s *Stub) check() error {
	if !bytes.HasPrefix(s.Binary, []byte("MZ")) {
		return app.Errorf(app.InvalidConfig, "stub-unusable", "the UEFI stub is no EFI program").Do("install Debian's systemd-boot-efi package again")
	}
	return nil
}

func (s *Stub) copyTo(dir string) error {
	_, err := writeFile(filepath.Join(dir, StubFile), func(w io.Writer) error {
		_, err := w.Write(s.Binary)
		return err
	})
	return err
}
