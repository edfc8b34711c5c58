package site

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/images/catalog"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/web/api"
)

// describe turns a capability card into what the enrol form shows.
func describe(c driver.Card, pinned string) (*api.Card, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding the card: %w", err)
	}
	out := &api.Card{OK: true, SPKI: c.SPKI, Vendor: c.Vendor, Model: c.Model, Serial: c.Serial, UUID: c.ProductUUID, Firmware: c.Firmware,
		Power: app.Power(c.Power.Power), MACs: c.MACs, Notes: c.Warnings, Card: raw}
	switch {
	case c.SPKI == "":
		out.PinStatus = "none"
	case pinned == "":
		out.PinStatus = "first-use"
	case pinned == c.SPKI:
		out.PinStatus = "matches"
	default:
		out.PinStatus = "differs"
	}
	return out, nil
}

// listing is the registry as the faces see it.
type listing struct {
	r      *drivers.Registry
	record func(app.Event)
}

// SiteLabels are the labels of the drivers that run here.
func (l listing) SiteLabels(context.Context) map[string]string { return l.r.SiteLabels() }

// PickDriver makes a version of a driver the active one.
func (l listing) PickDriver(ctx context.Context, actor, id, version string) error {
	if err := l.r.Pick(ctx, id, version); err != nil {
		return err
	}
	said := "version " + version + " of the driver " + id + " was picked"
	if version == "" {
		said = "the driver " + id + " is used in its highest version again"
	}
	l.record(app.Event{Time: now().UTC(), Kind: "driver.picked", Level: "info", Actor: actor, Message: said})
	return nil
}

// ListDrivers lists the registered drivers of a kind.
func (l listing) ListDrivers(_ context.Context, kind string) ([]api.Driver, error) {
	all, err := l.r.List(kind)
	if err != nil {
		return nil, err
	}
	out := make([]api.Driver, 0, len(all))
	for _, e := range all {
		d := api.Driver{ID: e.ID, Version: e.Version, RunsOn: e.RunsOn, Kinds: e.Kinds, Capabilities: e.Capabilities, Operations: e.Operations, RetrySafe: e.RetrySafe, Active: e.Active, Picked: e.Picked, Source: e.Plugin, Down: e.Reason}
		if d.Source == "" {
			d.Source = "built-in"
		}
		out = append(out, d)
	}
	return out, nil
}

// warnings is the Health page.
type warnings struct{ s *health.Service }

// Warnings runs every check.
func (w warnings) Warnings(ctx context.Context) ([]api.Warning, error) {
	var out []api.Warning
	for _, x := range w.s.Warnings(ctx) {
		out = append(out, api.Warning{Code: x.Code, Level: x.Level, Message: x.Message, WayOut: x.WayOut})
	}
	return out, nil
}

// images is the image store as the faces see it.
type images struct {
	*catalog.Catalog
	record func(app.Event)
}

func source(in api.ImportInput, size int64) catalog.Source {
	return catalog.Source{Name: in.Name, Format: in.Format, Digest: cmp.Or(in.SHA256, in.SHA512), Size: max(size, 0)}
}

// Upload imports an image from a request's body.
func (i images) Upload(ctx context.Context, _ string, in api.ImportInput, body io.Reader, size int64) (*app.Image, error) {
	return i.Import(ctx, source(in, size), body)
}

// Fetch starts an import from a URL.
func (i images) Fetch(ctx context.Context, _ string, in api.ImportInput, url string) (*app.Image, error) {
	return i.StartURL(ctx, source(in, 0), url)
}

// ImportPath starts an import from a file on the appliance.
func (i images) ImportPath(ctx context.Context, _ string, in api.ImportInput, path string) (*app.Image, error) {
	return i.StartFile(ctx, source(in, 0), path)
}

// Delete removes an image.
func (i images) Delete(ctx context.Context, actor, id string) error {
	err := i.Catalog.Delete(ctx, id)
	if err == nil {
		i.record(app.Event{Time: now().UTC(), Kind: "image.deleted", Level: "info", Actor: actor, Message: "image " + id + " was deleted"})
	}
	return err
}
