//go:build !embedramdisk

package embed

import "io/fs"

var files fs.FS
