package site

import (
	"runtime/debug"
	"slices"
	"strings"

	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
)

// Parts lists the third-party works this binary carries: its own Go modules, and those of the ramdisks inside it.
func Parts() ([]ramdisk.Part, error) {
	var out []ramdisk.Part
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			out = append(out, ramdisk.Part{In: "bcd", Name: m.Path, Version: m.Version, License: "see its LICENSE file", Source: "https://pkg.go.dev/" + m.Path + "@" + m.Version})
		}
	}
	if !embed.Embedded() {
		return out, nil
	}
	for _, flavour := range []string{ramdisk.Server, ramdisk.Lab} {
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
