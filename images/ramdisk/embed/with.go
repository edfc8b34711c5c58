//go:build embedramdisk

package embed

import (
	"embed"
	"io/fs"
)

// dist is where make ramdisk puts its output; it is not under version control.
//
//go:embed dist
var dist embed.FS

var files fs.FS = dist
