package drivers

import (
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

// ProbeInput is a BMC that may not be enrolled yet. Login, when given, is used instead of the credential reference.
type ProbeInput struct {
	BMC   app.BMC
	Login *secret.Value // an object with username and password
}

// Probe asks a BMC what it is and can do, and changes nothing on it. Without a pin in the input the key that answers is
// taken on first use and shown on the card; storing it is the caller's part. With a pin only that key is accepted.
func (r *Registry) Probe(ctx context.Context, in ProbeInput) (driver.Card, error) {
	b, err := r.bindProbe(ctx, in)
	if err != nil {
		return driver.Card{}, err
	}
	card, err := r.ask(ctx, b)
	if err == nil {
		r.Remember(ctx, in.BMC.Address) // only now: a mistyped address may be anybody's
	}
	return card, err
}

// ask gets the card from the driver's probe, or makes a plain one.
func (r *Registry) ask(ctx context.Context, b *bound) (driver.Card, error) {
	if !b.driver.Serves("management", "probe") {
		return r.plainCard(ctx, b)
	}
	raw, err := r.invoke(ctx, b, driver.Call{Kind: "management", Operation: "probe", Config: b.config}, Options{})
	if e, ok := app.AsError(err); ok && e.Reason == driver.CodeUnsupported {
		return r.plainCard(ctx, b)
	}
	if err != nil {
		return driver.Card{}, err
	}
	return decode[driver.Card]("management.probe", raw)
}

// bindProbe checks the input and opens the login.
func (r *Registry) bindProbe(ctx context.Context, in ProbeInput) (*bound, error) {
	if err := r.bindBMC(&in.BMC, map[string]app.Binding{}); err != nil {
		return nil, err
	}
	config, err := connection(&in.BMC)
	if err != nil {
		return nil, err
	}
	d, err := r.Driver(in.BMC.Driver)
	if err != nil {
		return nil, err
	}
	if issues := d.ValidateConfig(config); len(issues) > 0 {
		return nil, configError("bmc", in.BMC.Driver, issues)
	}
	b := &bound{driver: d, config: config, lane: laneOf(in.BMC.Address)}
	if in.Login != nil {
		b.secrets, err = loginOf(*in.Login)
	} else {
		b.secrets, err = r.login(ctx, in.BMC.CredentialRef)
	}
	if err != nil {
		return nil, err
	}
	return b, r.addOptions(ctx, d, config, b.secrets)
}

// plainCard makes a card of power and inspection, for drivers without a probe of their own.
func (r *Registry) plainCard(ctx context.Context, b *bound) (driver.Card, error) {
	card := driver.Card{Sessions: driver.SessionCard{Auth: "none", Open: -1}}
	ask := func(kind, op string) (json.RawMessage, error) {
		return r.invoke(ctx, b, driver.Call{Kind: kind, Operation: op, Config: b.config}, Options{})
	}
	raw, err := ask("power", "getPower")
	if err != nil {
		return card, err
	}
	if card.Power, err = decode[driver.PowerReading]("power.getPower", raw); err != nil {
		return card, err
	}
	if !b.driver.Has("inspect") {
		return card, nil
	}
	if raw, err = ask("inspect", "inspect"); err != nil {
		return card, err
	}
	inv, err := decode[driver.Inventory]("inspect.inspect", raw)
	card.Vendor, card.Model, card.Serial = inv.Manufacturer, inv.Model, inv.SerialNumber
	card.ProductUUID, card.MACs, card.BIOS, card.Warnings = inv.ProductUUID, inv.MACs, inv.BIOSVersion, inv.Warnings
	if inv.BMC != nil {
		card.Firmware = inv.BMC.Firmware
	}
	return card, err
}

// Validate runs the live checks of a machine's drivers, such as a login, once for each driver and configuration. The
// failures are by kind; an operator may override them, unlike those of Resolve.
func (r *Registry) Validate(ctx context.Context, m *app.Machine) map[string]error {
	h := r.For(m, Options{})
	failed, done := map[string]error{}, map[string]error{}
	for kind, b := range m.Drivers {
		key := b.Driver + " " + string(b.Config)
		err, checked := done[key]
		if !checked {
			err = h.validate(ctx, kind)
			done[key] = err
		}
		if err != nil {
			failed[kind] = err
		}
	}
	return failed
}

func (h *Handle) validate(ctx context.Context, kind string) error {
	b, err := h.bindTo(ctx, kind, h.m.Drivers[kind])
	if err != nil {
		return Error(err)
	}
	return h.r.inLane(ctx, b, "validation", func(ctx context.Context) error {
		return b.driver.ValidateLive(h.r.contextFor(ctx, b, h.o), b.config)
	})
}
