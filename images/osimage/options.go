package osimage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/better-compute/bcd/app"
)

// recipe changes whenever the same options would give another image: it is part of the cache key.
const recipe = 4

// Kernel chooses a kernel package.
type Kernel string

// The kernels.
const (
	Cloud   Kernel = "cloud"   // NVMe and virtio, no AHCI, no server HBAs: small and quick, for virtual machines
	Generic Kernel = "generic" // for hardware
)

// Options say what goes into an image. Zero values mean the default named at the field.
type Options struct {
	Kernel       Kernel   `json:"kernel"`                 // default Cloud
	Packages     []string `json:"packages,omitempty"`     // besides those every image has
	MiB          int      `json:"mib"`                    // size of the disk; default 1280, or 2048 with the generic kernel
	Mirror       string   `json:"mirror,omitempty"`       // default: Debian's, with security and updates
	RootPassword string   `json:"rootPassword,omitempty"` // for the console; default: root cannot log in
	KernelArgs   string   `json:"kernelArgs,omitempty"`   // after the consoles, on each boot
	Seed         string   `json:"seed"`                   // what the UUIDs of table and file systems derive from; default "bcd"
	Zstd         bool     `json:"zstd,omitempty"`         // deliver image.raw.zst, not image.raw
}

func (o Options) withDefaults() Options {
	if o.Kernel == "" {
		o.Kernel = Cloud
	}
	if o.MiB == 0 {
		o.MiB = map[Kernel]int{Cloud: 1280, Generic: 2048}[o.Kernel]
	}
	if o.Seed == "" {
		o.Seed = "bcd"
	}
	return o
}

// packageRE is Debian's syntax of a package name (Policy 5.6.1).
var packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,100}$`)

// Validate reports every problem of options with defaults filled in.
func (o Options) Validate() error {
	errs := []error{app.ValidLine("kernelArgs", o.KernelArgs, 1024), app.ValidLine("rootPassword", o.RootPassword, 128), app.ValidLine("mirror", o.Mirror, 256)}
	if o.Kernel != Cloud && o.Kernel != Generic {
		errs = append(errs, app.Invalid("kernel", "%q is neither %q nor %q", o.Kernel, Cloud, Generic))
	}
	if o.MiB < 1024 || o.MiB > 1<<20 {
		errs = append(errs, app.Invalid("mib", "%d MiB: an image has 1024 MiB to 1 TiB", o.MiB))
	}
	for _, p := range o.Packages {
		if !packageRE.MatchString(p) {
			errs = append(errs, app.Invalid("packages", "%q is not a package name", p))
		}
	}
	if strings.ContainsAny(o.KernelArgs, "\"`$\\") {
		errs = append(errs, app.Invalid("kernelArgs", "quotes, $ and backslashes would be read by a shell"))
	}
	if o.Mirror != "" && !strings.HasPrefix(o.Mirror, "http://") && !strings.HasPrefix(o.Mirror, "https://") {
		errs = append(errs, app.Invalid("mirror", "%q is not an http or https URL", o.Mirror))
	}
	return errors.Join(errs...)
}

// key names these options in a cache.
func (o Options) key() string {
	b, _ := json.Marshal(o) // plain strings and numbers: cannot fail
	sum := sha256.Sum256(fmt.Appendf(nil, "recipe %d\n%s", recipe, b))
	return hex.EncodeToString(sum[:8])
}

// uuid derives the UUID of a part of the image from the seed, as a version 8 UUID (RFC 9562).
func (o Options) uuid(part string) string {
	b := sha256.Sum256([]byte("bcd osimage\x00" + o.Seed + "\x00" + part))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:32]}, "-")
}

// volumeID derives the eight hexadecimal digits of the ESP's FAT serial number.
func (o Options) volumeID() string { return strings.ToUpper(o.uuid("esp")[:8]) }
