package ramdisk

import (
	"archive/tar"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/better-compute/bcd/images/ramdisk/internal/deb"
	"github.com/better-compute/bcd/images/ramdisk/internal/kmod"
)

// maxLinks bounds a chain of links in a firmware package.
const maxLinks = 8

// firmware is what the firmware packages hold below lib/firmware, by name.
type firmware struct {
	blobs    map[string]blob
	links    map[string]string // name → name, resolved to lib/firmware
	packages []deb.Control
}

type blob struct {
	data    []byte
	pkg     string
	version string
}

// readFirmware keeps those files of the packages that a driver may ask for, and all links.
//
// A wanted name may be a link to a file under a name that no driver asks for: such files are fetched in a second round,
// when all links are known.
func readFirmware(ctx context.Context, debs []string, wanted map[string]bool) (*firmware, error) {
	fw := &firmware{blobs: map[string]blob{}, links: map[string]string{}}
	want := wanted
	for round := 0; round < 2 && len(want) > 0; round++ {
		for _, p := range debs {
			if err := fw.read(ctx, p, want, round == 0); err != nil {
				return nil, err
			}
		}
		want = fw.targets(wanted)
	}
	return fw, nil
}

func (fw *firmware) read(ctx context.Context, p string, want map[string]bool, first bool) error {
	var c deb.Control
	return readDeb(ctx, p, func(got deb.Control) error {
		c = got
		if first {
			fw.packages = append(fw.packages, c)
		}
		return nil
	}, func(f deb.File) error {
		name, ok := strings.CutPrefix(strings.TrimPrefix(f.Name, "usr/"), "lib/firmware/")
		if !ok {
			return nil
		}
		switch f.Type {
		case tar.TypeSymlink:
			fw.links[name] = path.Join(path.Dir(name), f.Link)
		case tar.TypeLink:
			fw.links[name] = strings.TrimPrefix(strings.TrimPrefix(path.Clean(f.Link), "usr/"), "lib/firmware/")
		case tar.TypeReg:
			plain, ext := name, ""
			for _, e := range []string{".xz", ".zst"} {
				if n, ok := strings.CutSuffix(name, e); ok {
					plain, ext = n, e
				}
			}
			if !want[plain] {
				return nil
			}
			b, err := expand(f.Name, ext, f.Body)
			if err != nil {
				return err
			}
			fw.blobs[plain] = blob{data: b, pkg: c.Package, version: c.Version}
		}
		return nil
	})
}

// resolve follows links to the name of a file.
func (fw *firmware) resolve(name string) string {
	for range maxLinks {
		to, ok := fw.links[name]
		if !ok {
			break
		}
		name = to
	}
	return name
}

// targets are the files behind wanted links that have not been read.
func (fw *firmware) targets(wanted map[string]bool) map[string]bool {
	t := map[string]bool{}
	for n := range wanted {
		if to := fw.resolve(n); to != n {
			if _, ok := fw.blobs[to]; !ok {
				t[to] = true
			}
		}
	}
	return t
}

// wantedFirmware lists each driver's files, sorted, and the set of names.
func wantedFirmware(mods []*kmod.Module) ([]FirmwareInfo, map[string]bool) {
	list := []FirmwareInfo{}
	names := map[string]bool{}
	for _, m := range mods {
		for _, f := range m.Firmware {
			if f = path.Clean(f); f == "." || strings.HasPrefix(f, "../") || strings.HasPrefix(f, "/") {
				continue
			}
			list = append(list, FirmwareInfo{Driver: m.Name, File: f})
			names[f] = true
		}
	}
	slices.SortFunc(list, func(a, b FirmwareInfo) int {
		return strings.Compare(a.Driver+"\x00"+a.File, b.Driver+"\x00"+b.File)
	})
	return slices.Compact(list), names
}

// place puts the found files into the archive and notes where each came from.
func (fw *firmware) place(a *archive, list []FirmwareInfo) {
	for i := range list {
		b, ok := fw.blobs[fw.resolve(list[i].File)]
		if !ok {
			continue
		}
		list[i].Package, list[i].Bytes = b.pkg, int64(len(b.data))
		a.file("lib/firmware/"+list[i].File, b.data, 0o644)
	}
}
