package redfish

import (
	"cmp"
	"context"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// maxDrives bounds the virtual drives read of one place; an XCC has ten.
const maxDrives = 16

// The actions of a virtual drive.
const (
	insertAction = "#VirtualMedia.InsertMedia"
	ejectAction  = "#VirtualMedia.EjectMedia"
)

// drive is one virtual drive as it was read.
type drive struct {
	*document
	id    string
	types []string
}

// drives lists the virtual drives under the system, where newer BMCs keep them, and under the manager. One drive may show
// in both.
func (c *conn) drives(ctx context.Context, sys, manager *document) ([]drive, error) {
	var out []drive
	for _, link := range []string{sys.link("VirtualMedia"), manager.link("VirtualMedia")} {
		links, err := c.members(ctx, link, maxDrives)
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			d, err := c.find(ctx, l)
			if err != nil {
				return nil, err
			}
			if d == nil {
				continue
			}
			id := clip(firstOf(d.text("Id"), l), 80)
			if !slices.ContainsFunc(out, func(o drive) bool { return o.id == id }) {
				out = append(out, drive{d, id, short(d.texts("MediaTypes"))})
			}
		}
	}
	return out, nil
}

// mediaSlots are the drives for the capability card.
func (c *conn) mediaSlots(ctx context.Context, sys, manager *document) ([]driver.MediaSlot, error) {
	all, err := c.drives(ctx, sys, manager)
	var slots []driver.MediaSlot
	for _, d := range all {
		slot := driver.MediaSlot{ID: d.id, Types: d.types}
		if d.takesCD() {
			slot.Form = d.form()
		}
		slots = append(slots, slot)
	}
	return slots, err
}

// takesCD reports whether the drive can be a CD. Some name DVD alone (Cisco UCS), and AMI's Gigabyte names no types.
func (d drive) takesCD() bool {
	if quirkConsoleDrive(d.id) {
		return false
	}
	if d.types == nil {
		return strings.HasPrefix(strings.ToUpper(d.id), "CD")
	}
	return slices.ContainsFunc(d.types, func(t string) bool { return strings.EqualFold(t, "CD") || strings.EqualFold(t, "DVD") })
}

// form names how an image is put in: by the action, or by a PATCH where the drive has none.
func (d drive) form() string {
	if d.text("Actions", insertAction, "target") != "" {
		return "action"
	}
	return "patch"
}

// onlyCD reports a drive that is nothing but a CD.
func (d drive) onlyCD() bool {
	return !slices.ContainsFunc(d.types, func(t string) bool { return strings.EqualFold(t, "USBStick") || strings.EqualFold(t, "Floppy") })
}

// full reports whether the drive holds a medium. Supermicro keeps Image after an eject, so that Inserted decides where it
// is given.
func (d drive) full() bool {
	if v := d.text("Inserted"); v != "" {
		return strings.EqualFold(v, "true")
	}
	return d.image() != "" && d.via() != "" && !strings.EqualFold(d.via(), "NotConnected")
}

func (d drive) via() string { return d.text("ConnectedVia") }

// image is the address shown; Gigabyte shows "None" for an empty drive.
func (d drive) image() string {
	if v := d.text("Image"); !strings.EqualFold(v, "None") {
		return v
	}
	return ""
}

// byConsole reports a medium that a person put in through a remote console.
func (d drive) byConsole() bool { return d.full() && strings.EqualFold(d.via(), "Applet") }

// holds reports whether the drive holds the image with this address.
func (d drive) holds(iso string) bool { return d.full() && sameImage(d.image(), iso) }

// shows reports whether the drive, after it was asked to take the image, shows nothing that contradicts that.
func (d drive) shows(iso string) bool {
	return d.full() && (d.image() == "" || sameImage(d.image(), iso) || !strings.Contains(d.image(), "://") && path.Base(d.image()) == path.Base(imagePath(iso)))
}

func imagePath(iso string) string {
	u, err := url.Parse(iso)
	if err != nil {
		return ""
	}
	return u.Path
}

// sameImage compares what a BMC shows with an address.
func sameImage(shown, iso string) bool {
	a, err1 := url.Parse(shown)
	b, err2 := url.Parse(iso)
	if err1 != nil || err2 != nil {
		return false
	}
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && a.Path == b.Path &&
		(a.RawQuery == "" || a.RawQuery == b.RawQuery) && (quirkNoPort(a) || portOf(a) == portOf(b))
}

func portOf(u *url.URL) string {
	return firstOf(u.Port(), map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)])
}

// candidates are the drives to try for an image, best first: the one that holds it, one with the action before one
// without, one that is a CD only before one that may be a stick.
func candidates(all []drive, iso string) []drive {
	rank := func(d drive) (n int) {
		if !d.holds(iso) {
			n += 4
		}
		if d.form() != "action" {
			n += 2
		}
		if !d.onlyCD() {
			n++
		}
		return n
	}
	out := slices.DeleteFunc(slices.Clone(all), func(d drive) bool { return !d.takesCD() })
	slices.SortStableFunc(out, func(a, b drive) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}
