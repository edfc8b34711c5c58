package redfish

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	maxSystems  = 16
	maxChildren = 64
)

// findSystem gives the path of the machine inside the BMC: the one the address names, else the only one with a host's
// power action. Boards with accelerators show their baseboard as a system without one (NVIDIA GB200).
func (c *conn) findSystem(ctx context.Context) (*document, error) {
	if c.target.system != "" {
		return c.get(ctx, c.target.system)
	}
	c.mu.Lock()
	known := c.system
	c.mu.Unlock()
	if known != "" {
		d, err := c.get(ctx, known)
		if err != nil && driver.AsError(err).Code == codeNotFound {
			c.setSystem("") // a BMC update may have moved it: look again next time
		}
		return d, err
	}
	if _, err := c.login(ctx, ""); err != nil {
		return nil, err
	}
	hosts, err := c.hosts(ctx)
	if err != nil {
		return nil, err
	}
	switch len(hosts) {
	case 0:
		return nil, driver.Errorf(driver.CodeBMCError, "the BMC shows no machine")
	case 1:
		c.setSystem(hosts[0].path)
		return hosts[0], nil
	}
	var names []string
	for _, h := range hosts {
		names = append(names, clip(h.path, 80))
	}
	return nil, driver.Errorf("ambiguous-system", "the BMC serves %d machines; put one into the address, such as %s%s: it has %s",
		len(hosts), strings.TrimPrefix(c.target.origin, "https://"), names[0], strings.Join(names, ", "))
}

func (c *conn) setSystem(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.system = path
}

// hosts reads the systems that have a host's power action, or the only one there is. One that cannot be read counts only
// when no other can.
func (c *conn) hosts(ctx context.Context) ([]*document, error) {
	paths, err := c.members(ctx, c.root.link("Systems"), maxSystems)
	if err != nil {
		return nil, err
	}
	var all, hosts []*document
	var failed error
	for _, p := range paths {
		d, err := c.get(ctx, p)
		switch e := driver.AsError(err); {
		case err == nil:
		case e.Code == codeNotFound, e.Code == driver.CodeBMCError, e.Code == driver.CodeUnsupported:
			failed = err
			continue
		default:
			return nil, err
		}
		if all = append(all, d); isHost(d) {
			hosts = append(hosts, d)
		}
	}
	switch {
	case len(hosts) == 0 && len(all) == 1:
		return all, nil
	case len(hosts) == 0 && failed != nil:
		return nil, failed
	}
	return hosts, nil
}

func isHost(d *document) bool { return d.text("Actions", "#ComputerSystem.Reset", "target") != "" }

// makerOf names the maker, from wherever the BMC says it: Dell blades and iDRAC 8 leave the system's field empty. "" when
// nothing does.
func (c *conn) makerOf(sys *document) string {
	if v := firstOf(clean(sys.text("Manufacturer")), clean(c.root.text("Vendor"))); v != "" {
		return v
	}
	for _, k := range slices.Sorted(maps.Keys(c.root.object("Oem").members())) {
		return k
	}
	return ""
}

// members are the members of an object document; none for nil.
func (d *document) members() map[string]any {
	if d == nil {
		return nil
	}
	return d.body
}

// manager reads the BMC's own resource: the one that the system names, else the first. nil when there is none.
func (c *conn) manager(ctx context.Context, sys *document) (*document, error) {
	link := sys.link("Links", "ManagedBy")
	if link == "" {
		all, err := c.members(ctx, c.root.link("Managers"), maxSystems)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		link = all[0]
	}
	return c.find(ctx, link)
}
