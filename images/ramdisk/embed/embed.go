// Package embed carries the built ramdisks inside the bcd binary, when it was built with the tag embedramdisk.
//
// It is a leaf: it imports nothing of bcd, so that everything compiles on a fresh clone, before any ramdisk was built.
package embed

import (
	"errors"
	"io/fs"
)

// ErrNotEmbedded says that this binary carries no ramdisk.
var ErrNotEmbedded = errors.New("this binary was built without a ramdisk: build it with make, or give a directory that bcd ramdisk build wrote")

// FS gives the output directory of ramdisk.Build for a flavour ("server", "lab"), or ErrNotEmbedded.
func FS(flavour string) (fs.FS, error) {
	if files == nil {
		return nil, ErrNotEmbedded
	}
	return fs.Sub(files, "dist/"+flavour)
}

// Embedded tells whether this binary carries ramdisks.
func Embedded() bool { return files != nil }
