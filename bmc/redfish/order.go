package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// maxBootOptions are read of one machine: a host with many ports shows a protocol each.
const maxBootOptions = 128

// BootOrder reads the order and every option. A BMC takes a second for some of them, so an option that cannot be read is left
// to its number.
func (m management) BootOrder(ctx *driver.Context) (driver.BootOrder, error) {
	var o driver.BootOrder
	err := m.use(ctx, readLimit, func(ctx *driver.Context, c *conn) (err error) {
		o, err = c.bootOrder(ctx)
		return err
	})
	return o, err
}

func (c *conn) bootOrder(ctx context.Context) (driver.BootOrder, error) {
	sys, settings, err := c.bootDocuments(ctx)
	if err != nil {
		return driver.BootOrder{}, err
	}
	o := driver.BootOrder{Order: sys.texts("Boot", "BootOrder"), Options: []driver.BootOption{}}
	if o.Order == nil {
		return o, driver.Errorf(driver.CodeUnsupported, "the BMC shows no boot order")
	}
	if len(o.Order) > maxBootOptions {
		return o, driver.Errorf(driver.CodeBMCError, "the BMC lists %d boot options, more than are looked at", len(o.Order))
	}
	// Where the settings object carries an order of its own, that is the one that holds from the next start on.
	if next := settings.texts("Boot", "BootOrder"); sameSet(next, o.Order) && !slices.Equal(next, o.Order) {
		o.Order, o.Pending = next, true
		o.Notes = append(o.Notes, "the BMC holds the order for the next start of the machine")
	}
	o.Writable = !strings.EqualFold(sys.text("Boot", "BootOrderPropertySelection"), "AliasBootOrder")
	o.Options, err = c.bootOptions(ctx, sys.link("Boot", "BootOptions"))
	return o, err
}

func (c *conn) bootOptions(ctx context.Context, link string) ([]driver.BootOption, error) {
	out := []driver.BootOption{}
	if link == "" {
		return out, nil
	}
	paths, err := c.members(ctx, link, maxBootOptions)
	if err != nil {
		if e := driver.AsError(err); e.Code == codeNotFound || e.Code == driver.CodeBMCError || e.Code == driver.CodeUnsupported {
			return out, nil // the order stands without its names
		}
		return out, err
	}
	for _, p := range paths {
		d, err := c.find(ctx, p)
		if err != nil {
			return out, err
		}
		if d != nil {
			out = append(out, bootOption(d))
		}
	}
	return out, nil
}

// bootOption reads one option. Its Name is the same for all on many BMCs, and DisplayName the one people see in setup.
func bootOption(d *document) driver.BootOption {
	id := clip(firstOf(d.text("BootOptionReference"), d.text("Id")), 64)
	name := clip(firstOf(d.text("DisplayName"), d.text("Name"), id), 128)
	e := app.BootEntryOfPath(id, name, clip(d.text("UefiDevicePath"), 512))
	if e.Path == "" {
		e.Path = name
	}
	enabled, said := d.get("BootOptionEnabled").(bool)
	return driver.BootOption{
		ID: id, Name: name, Kind: e.Kind, Protocol: e.Protocol, MAC: e.MAC, Partition: e.Partition, Path: e.Path, Disabled: said && !enabled,
	}
}

// SetBootOrder writes the whole list, as some BMCs refuse less (HPE iLO 5), and returns when it reads back.
func (m management) SetBootOrder(ctx *driver.Context, order []string) (driver.BootOrder, error) {
	var o driver.BootOrder
	err := m.use(ctx, writeLimit, func(ctx *driver.Context, c *conn) (err error) {
		if o, err = c.bootOrder(ctx); err != nil {
			return err
		}
		if !sameSet(order, o.Order) {
			return driver.Errorf(driver.CodeInvalidArgs, "the boot order must name each of the %d options of the present one, once", len(o.Order))
		}
		if slices.Equal(order, o.Order) {
			return nil
		}
		return m.writeOrder(ctx, c, order, &o)
	})
	return o, err
}

// writeOrder tries the settings object, where it has an order, and then the system.
func (m management) writeOrder(ctx *driver.Context, c *conn, order []string, o *driver.BootOrder) error {
	var refused *driver.Error
	for _, onSettings := range []bool{true, false} {
		sys, settings, err := c.bootDocuments(ctx)
		if err != nil {
			return err
		}
		doc := sys
		if onSettings {
			if doc = settings; doc == nil || doc.object("Boot") == nil || doc.get("Boot", "BootOrder") == nil {
				continue
			}
		}
		r, err := m.patch(ctx, c, doc, map[string]any{"Boot": map[string]any{"BootOrder": order}})
		if err != nil {
			return err
		}
		if r.status >= 300 {
			f := parseFault(r)
			refused = f.err("the boot order")
			if r.status == http.StatusUnauthorized || r.status == http.StatusForbidden {
				return refused
			}
			continue
		}
		switch ok, err := m.readOrder(ctx, c, order, o); {
		case err != nil:
			return err
		case ok:
			return nil
		}
		refused = nil
	}
	if refused != nil {
		return refused
	}
	return driver.Errorf(driver.CodeNotApplied, "the BMC accepted the boot order and did not keep it; set the boot order in the machine's firmware, or update the BMC")
}

// readOrder reads until the order shows.
func (m management) readOrder(ctx *driver.Context, c *conn, order []string, o *driver.BootOrder) (bool, error) {
	for i := range bootReads {
		if i > 0 {
			if err := m.pause(ctx, settle); err != nil {
				return false, err
			}
		}
		sys, settings, err := c.bootDocuments(ctx)
		if err != nil {
			return false, err
		}
		now, next := sys.texts("Boot", "BootOrder"), settings.texts("Boot", "BootOrder")
		if slices.Equal(now, order) || slices.Equal(next, order) {
			o.Order, o.Pending = order, !slices.Equal(now, order)
			return true, nil
		}
	}
	return false, nil
}

// sameSet reports whether two lists hold the same words, each once.
func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b) && len(slices.Compact(a)) == len(b)
}
