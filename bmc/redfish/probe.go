package redfish

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// Probe looks at a BMC before it is enrolled. Without a pin in the configuration it takes the key that answers first and
// shows it on the card; with one, only that key is accepted. Its session is its own, and deleted at the end.
func (m management) Probe(ctx *driver.Context) (driver.Card, error) {
	user, password, err := credentials(ctx)
	if err != nil {
		return driver.Card{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	ctx = ctx.With(bounded)
	c := m.newConn(user, password, true)
	defer c.logout()
	sys, err := c.findSystem(ctx)
	if err != nil {
		return c.certCard(), err
	}
	return m.card(ctx, c, sys)
}

// certCard is what the TLS handshake showed.
func (c *conn) certCard() driver.Card {
	c.client.mu.Lock()
	defer c.client.mu.Unlock()
	card := driver.Card{Power: driver.PowerReading{Power: driver.PowerUnknown, Reason: "not read"}}
	if c.seen != nil {
		card.SPKI = spki(c.seen)
		card.CertSubject = clip(c.seen.Subject.String(), 200)
		card.CertExpires = c.seen.NotAfter.UTC().Format(time.RFC3339)
		card.CertTrusted = c.ok
	}
	return card
}

// card fills the capability card of a logged-in BMC.
func (m management) card(ctx *driver.Context, c *conn, sys *document) (driver.Card, error) {
	inv, err := c.inventory(ctx, sys)
	if err != nil {
		return c.certCard(), err
	}
	card := c.certCard()
	card.Vendor, card.Model, card.Serial = inv.Manufacturer, inv.Model, inv.SerialNumber
	card.ProductUUID, card.MACs, card.BIOS = inv.ProductUUID, inv.MACs, inv.BIOSVersion
	card.System = clip(sys.path, 200)
	card.Warnings = inv.Warnings
	if inv.BMC != nil {
		card.Firmware = inv.BMC.Firmware
	}
	if v := c.root.text("RedfishVersion"); v != "" {
		card.Protocol = clip("Redfish "+v, 40)
	}
	if card.Power, err = c.readPower(ctx, sys); err != nil {
		return card, err
	}
	if card.PowerActions, err = c.powerActions(ctx, sys); err != nil {
		return card, err
	}
	if card.Boot, err = c.bootCard(ctx); err != nil {
		return card, err
	}
	manager, err := c.manager(ctx, sys)
	if err != nil {
		return card, err
	}
	if card.Media, err = c.mediaSlots(ctx, sys, manager); err != nil {
		return card, err
	}
	if card.Sessions, err = c.sessionCard(ctx); err != nil {
		return card, err
	}
	m.addClock(manager, &card)
	return card, nil
}

// powerActions are the actions that the reset types of now allow.
func (c *conn) powerActions(ctx context.Context, sys *document) ([]string, error) {
	allowed, err := c.allowedResets(ctx, sys)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range []driver.PowerAction{driver.ActionOn, driver.ActionOff, driver.ActionReset, driver.ActionSoft} {
		if _, err := chooseReset(a, allowed); err == nil {
			out = append(out, string(a))
		}
	}
	if slices.Contains(out, "on") && slices.Contains(out, "off") {
		out = append(out, string(driver.ActionCycle))
	}
	return out, nil
}

// bootCard is what the boot override offers, and the form that will be written first.
func (c *conn) bootCard(ctx context.Context) (driver.BootCard, error) {
	sys, settings, err := c.bootDocuments(ctx)
	if err != nil {
		return driver.BootCard{}, err
	}
	f := bootFactsOf(strings.ToLower(c.makerOf(sys)), sys, settings)
	card := driver.BootCard{Targets: short(f.targets), Enabled: short(f.enabledValues), Modes: short(f.modes), Mode: clip(f.mode, 32)}
	if sys.object("Boot") == nil {
		return card, nil
	}
	if w, err := wishFor(f, driver.BootPXE, driver.BootOptions{}); err == nil {
		card.Form = planBoot(f, w)[0].label()
	}
	return card, nil
}

// short bounds a list of words from a BMC.
func short(list []string) []string {
	var out []string
	for _, s := range list[:min(len(list), 32)] {
		out = append(out, clip(s, 64))
	}
	return out
}

// sessionCard says how we are logged in and how full the BMC's session table is.
func (c *conn) sessionCard(ctx context.Context) (driver.SessionCard, error) {
	c.mu.Lock()
	card := driver.SessionCard{Auth: "session", Open: -1}
	if c.basic {
		card.Auth = "basic"
	}
	c.mu.Unlock()
	d, err := c.find(ctx, c.root.link("Links", "Sessions"))
	if d != nil && d.get("Members") != nil {
		card.Open = len(d.links("Members"))
	}
	return card, err
}

// addClock compares the BMC's clock with ours. A BMC hours off breaks certificates and logs.
func (m management) addClock(manager *document, card *driver.Card) {
	t, err := time.Parse(time.RFC3339, manager.text("DateTime"))
	if err != nil {
		return
	}
	skew := t.Sub(m.now()).Round(time.Second).Seconds() // by the integer, which has no -0
	card.ClockSkew = &skew
	if math.Abs(skew) > (5 * time.Minute).Seconds() {
		card.Warnings = append(card.Warnings, "the BMC's clock is off by "+time.Duration(skew*float64(time.Second)).String()+"; set NTP on the BMC")
	}
}
