package ramdisk

import (
	"embed"
	"strings"

	"github.com/better-compute/bcd/app"
)

//go:embed modules/*.list
var moduleLists embed.FS

// The flavours.
const (
	Server = "server" // Debian's generic kernel and every server driver: what hardware boots
	Lab    = "lab"    // Debian's cloud kernel and QEMU's devices: the fast lane of tests
)

// ModuleList gives the modules of a flavour, in the list's order.
func ModuleList(flavour string) ([]string, error) {
	b, err := moduleLists.ReadFile("modules/" + flavour + ".list")
	if err != nil {
		return nil, app.Invalid("flavour", "there is no ramdisk flavour %q", flavour).Do("use %q or %q", Server, Lab)
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		names = append(names, strings.Fields(line)...)
	}
	return names, nil
}
