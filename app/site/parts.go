package site

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
	"github.com/better-compute/bcd/web/assets"
)

// Parts lists the third-party works this binary carries: Go's library and modules, what the console's pages load, and the
// parts of the ramdisks inside it.
func Parts() ([]ramdisk.Part, error) {
	goVersion, _, _ := strings.Cut(runtime.Version(), " ") // experiments may follow
	out := []ramdisk.Part{{In: "bcd", Name: "Go standard library", Version: goVersion, License: "BSD-3-Clause", Source: "https://go.dev/dl/" + goVersion + ".src.tar.gz"}}
	for _, w := range assets.Works() {
		out = append(out, ramdisk.Part{In: "bcd", Name: w.Package, Version: w.Version, License: w.License, Source: "https://www.npmjs.com/package/" + w.Package + "/v/" + w.Version})
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			out = append(out, ramdisk.Part{In: "bcd", Name: m.Path, Version: m.Version, License: "see its LICENSE file", Source: "https://pkg.go.dev/" + m.Path + "@" + m.Version})
		}
	}
	if !embed.Embedded() {
		return out, nil
	}
	for _, flavour := range []string{ramdisk.Server, ramdisk.Lab, ramdisk.GRUB} {
		dir, err := embed.FS(flavour)
		if err != nil {
			return nil, err
		}
		m, err := ramdisk.ReadManifest(dir)
		if err != nil {
			return nil, err
		}
		for _, p := range m.Parts {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b ramdisk.Part) int { return strings.Compare(a.In+a.Name, b.In+b.Name) })
	return out, nil
}
