package site

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/host"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/web/api"
)

// File is config.toml. Every key is optional.
type File struct {
	Site struct {
		Name    string `toml:"name"` // until a person gives it another in the console's settings; absent: none
		DataDir string `toml:"data_dir"`
		// DestructiveBatch is how many machines one operator may do something to at once that cannot be taken back; more
		// wait for a second one.
		DestructiveBatch int `toml:"destructive_batch"`
	} `toml:"site"`
	Listen struct {
		Console string `toml:"console"` // HTTPS: browser, API, CLI
		Agent   string `toml:"agent"`   // HTTPS: machines in the ramdisk
		Boot    string `toml:"boot"`    // HTTP: boot files and chunks
	} `toml:"listen"`
	Netboot struct {
		Loaders string `toml:"loaders"` // directory with newer iPXE builds than the packaged ones
		Ramdisk string `toml:"ramdisk"` // directory with another ramdisk than the built-in one
	} `toml:"netboot"`
	BMCDrivers map[string][]string `toml:"bmc_drivers"`
	Vault      VaultFile           `toml:"vault"`
	Plugins    PluginsFile         `toml:"plugins"`
}

// Defaults of config.toml.
const (
	DefaultDataDir = "/var/lib/bcd"
	DefaultConsole = ":8443"
	DefaultAgent   = ":8444"
	DefaultBoot    = ":8080"
)

// LoadFile reads config.toml. The usual one may be absent, and then the defaults hold; another was named, and a slip of the pen
// must not start an empty appliance. Unknown keys are errors: a misspelt key must not pass for the default.
func LoadFile(path string) (File, error) {
	var f File
	if path != "" {
		md, err := toml.DecodeFile(path, &f)
		var where *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist) && path == host.ConfigPath:
		case errors.As(err, &where):
			return f, app.Errorf(app.InvalidConfig, "no-config", "the configuration %s cannot be read: %w", path, where.Err).Do("name a file that is there and that may be read, or leave --config out for %s", host.ConfigPath)
		case err != nil:
			return f, app.Errorf(app.InvalidConfig, "bad-config", "%s cannot be read: %v", path, err).Do("mend that line")
		default:
			if un := md.Undecoded(); len(un) > 0 {
				return f, app.Errorf(app.InvalidConfig, "unknown-key", "%s has the unknown key %q", path, un[0].String()).Do("remove it, or correct its spelling")
			}
		}
	}
	f.defaults()
	if !filepath.IsAbs(f.Site.DataDir) {
		return f, app.Errorf(app.InvalidConfig, "bad-config", "%q depends on where the program is started", f.Site.DataDir).At("site.data_dir").Do("write the whole path, such as %s", DefaultDataDir)
	}
	return f, f.Validate()
}

func (f *File) defaults() {
	for _, d := range []struct {
		at    *string
		value string
	}{
		{&f.Site.DataDir, DefaultDataDir}, {&f.Listen.Console, DefaultConsole},
		{&f.Listen.Agent, DefaultAgent}, {&f.Listen.Boot, DefaultBoot},
	} {
		if *d.at == "" {
			*d.at = d.value
		}
	}
}

// Validate reports every problem at once.
func (f *File) Validate() error {
	var errs []error
	if err := api.ValidSiteName("site.name", f.Site.Name); err != nil {
		errs = append(errs, err)
	}
	if f.Site.DestructiveBatch < 0 || f.Site.DestructiveBatch > 1000 {
		errs = append(errs, app.Errorf(app.InvalidConfig, "bad-config", "is not between 1 and 1000").At("site.destructive_batch").Do("leave it out for %d", api.DefaultDestructiveBatch))
	}
	errs = append(errs, f.Vault.validate(), validBMCDrivers(f.BMCDrivers))
	for key, addr := range map[string]string{"listen.console": f.Listen.Console, "listen.agent": f.Listen.Agent, "listen.boot": f.Listen.Boot} {
		if _, err := port(addr); err != nil {
			errs = append(errs, app.Errorf(app.InvalidConfig, "bad-address", "%q is not an address to listen on", addr).At(key).Do("write it as :8443 or 192.0.2.1:8443"))
		}
	}
	errs = append(errs, f.Plugins.validate())
	return errors.Join(errs...)
}

// operationRE is KIND.OPERATION.
var operationRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}\.[a-zA-Z_$][a-zA-Z0-9_$]{0,63}$`)

// validBMCDrivers refuses what no driver could serve: a misspelt operation would pass for one that the driver lacks.
func validBMCDrivers(all map[string][]string) error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(all)) {
		for _, operation := range all[id] {
			kind, name, _ := strings.Cut(operation, ".")
			k, known := driver.LookupKind(kind)
			if _, has := k.Operation(name); !operationRE.MatchString(operation) || known && !has {
				errs = append(errs, app.Errorf(app.InvalidConfig, "bad-config", "%q is no operation of a driver", operation).At("bmc_drivers."+id).
					Do(`write operations as in acme-bmc = ["power.getPower", "power.setPower"]`))
			}
		}
	}
	return errors.Join(errs...)
}

// port takes the port out of an address to listen on: its host is empty or an IP address.
func port(addr string) (uint16, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return 0, err
		}
	}
	n, err := strconv.ParseUint(p, 10, 16)
	return uint16(n), err
}

// Needs lists the ports the appliance opens.
func (f *File) Needs() []host.Need {
	need := func(proto, addr, what string) host.Need {
		p, _ := port(addr) // Validate has checked it
		return host.Need{Proto: proto, Port: p, For: what}
	}
	return []host.Need{
		need("tcp", f.Listen.Console, "the console"), need("tcp", f.Listen.Agent, "agents"), need("tcp", f.Listen.Boot, "boot files"),
		{Proto: "udp", Port: 67, For: "DHCP"}, {Proto: "udp", Port: 69, For: "TFTP"}, {Proto: "udp", Port: 123, For: "time"},
		{Proto: "udp", Port: 4011, For: "proxy DHCP"},
	}
}
