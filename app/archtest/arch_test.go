package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/better-compute/bcd/"

type pkg struct {
	ImportPath   string
	Doc          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Deps         []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps"}, args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", args, err, stderr.String())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// rooms says which of our own packages each room may import besides its own subtree. The longest prefix wins. A room that
// is not here may not exist.
var rooms = map[string][]string{
	"app":          {},
	"app/workflow": {"app"},
	"app/access":   {"app"},
	"app/secret":   {"app"},
	"app/event":    {"app"},
	"app/health":   {"app"},
	"app/recorder": {"app"},
	"app/agent":    {"app", "app/workflow", "proto/"},
	"app/drivers":  {"app", "app/secret", "plugins/driver"},
	"app/metal":    {"app", "app/workflow", "app/agent", "app/drivers", "plugins/driver", "proto/"},
	"app/host":     {"app"},
	"app/listen":   {},
	"app/child":    {},
	"app/serial":   {"app"},
	"app/archtest": {},
	// The wiring: the only rooms that know every adapter.
	"app/site": {"*"},
	"app/lab":  {"*"},
	"cmd":      {"*"},

	"store":          {"app", "app/workflow"},
	"web":            {"app", "app/", "plugins/driver", "proto/"},
	"netboot":        {"app", "app/listen"},
	"bmc/redfish":    {"app", "plugins/driver"},
	"bmc/virtual":    {"app"},
	"bmc/bmctest":    {"app", "app/child", "plugins/driver"},
	"images/chunk":   {"app"},
	"images/layout":  {"app"},
	"images/catalog": {"app", "images/chunk", "images/flat", "images/layout"},
	"images/flat":    {"app"},
	"images/agent":   {"app", "images/chunk", "images/layout", "proto/"},
	"images/osimage": {"app"},
	"images/ramdisk": {"app", "images/flat", "proto/"},
	"images/uki":     {"app"},

	"plugins/driver":   {},
	"plugins/bcx":      {"app/child", "plugins/driver", "proto/bettercompute/driver"},
	"plugins/sandbox":  {},
	"plugins/host":     {"app", "plugins/driver", "plugins/bcx", "plugins/sandbox", "proto/bettercompute/driver"},
	"plugins/examples": {"plugins/driver", "plugins/bcx"},
	"bmc/ipmi":         {"plugins/driver"},
	"proto":            {},
}

// forbidden lists what a room that may import "app/" must leave alone all the same.
var forbidden = map[string][]string{
	"web": {"app/metal", "app/site", "app/lab"},
}

func room(path string) (string, bool) {
	for p := path; p != "." && p != ""; {
		if _, ok := rooms[p]; ok {
			return p, true
		}
		i := strings.LastIndex(p, "/")
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return "", false
}

func allowed(from, to string) bool {
	r, _ := room(from)
	if to == r || strings.HasPrefix(to, r+"/") && r != "app" {
		return true
	}
	for _, f := range forbidden[r] {
		if to == f || strings.HasPrefix(to, f+"/") {
			return false
		}
	}
	for _, a := range rooms[r] {
		if a == "*" || a == to || strings.HasSuffix(a, "/") && strings.HasPrefix(to, a) || !strings.HasSuffix(a, "/") && a != "app" && strings.HasPrefix(to, a+"/") {
			return true
		}
	}
	return false
}

func TestImports(t *testing.T) {
	for _, p := range list(t, "./...") {
		from := strings.TrimPrefix(p.ImportPath, module)
		if _, ok := room(from); !ok {
			t.Errorf("%s belongs to no room of archtest's list", from)
			continue
		}
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours && !allowed(from, to) {
				t.Errorf("%s imports %s, which its room may not", from, to)
			}
		}
	}
}

func TestDomainImportsTheStandardLibraryOnly(t *testing.T) {
	for _, p := range list(t, "./app", "./proto/bettercompute/agent/...") {
		for _, imp := range p.Imports {
			if strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	for _, p := range list(t, "./...") {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package documentation", p.ImportPath)
		}
	}
}

func TestNoPackageIsADrawer(t *testing.T) {
	for _, p := range list(t, "./...") {
		switch name := p.ImportPath[strings.LastIndex(p.ImportPath, "/")+1:]; name {
		case "util", "utils", "common", "helpers", "types", "models", "manager":
			t.Errorf("%s: a package is named for what it holds, not %q", p.ImportPath, name)
		}
	}
}

func TestBinariesLinkOnlyWhatTheyNeed(t *testing.T) {
	for binary, never := range map[string][]string{
		"./cmd/bcx-ipmi":    {"modernc.org/sqlite", "github.com/labstack/echo", "github.com/a-h/templ", "github.com/bougou/go-ipmi", module + "app", module + "store", module + "web"},
		"./cmd/bcd-ramdisk": {"modernc.org/sqlite", "github.com/labstack/echo", "github.com/a-h/templ", "google.golang.org/grpc", module + "store", module + "web"},
	} {
		for _, p := range list(t, binary) {
			for _, d := range p.Deps {
				for _, n := range never {
					if strings.HasPrefix(d, n) {
						t.Errorf("%s links %s", binary, d)
					}
				}
			}
		}
	}
}
