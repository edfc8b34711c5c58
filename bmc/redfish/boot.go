package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	settle     = 2 * time.Second // after which a boot override that a BMC takes back is gone (Supermicro)
	bootReads  = 5               // reads until a written override must show
	bootWrites = 2               // writes of one form before the next is tried
)

// management implements driver.Management, driver.CredentialRotator and driver.Prober.
type management struct{ *operations }

// SetBootDevice writes the override in the first form that the BMC takes and keeps.
func (m management) SetBootDevice(ctx *driver.Context, device driver.BootDevice, options driver.BootOptions) (driver.BootResult, error) {
	var result driver.BootResult
	err := m.use(ctx, writeLimit, func(ctx *driver.Context, c *conn) error {
		sys, settings, err := c.bootDocuments(ctx)
		if err != nil {
			return err
		}
		facts := bootFactsOf(strings.ToLower(c.makerOf(sys)), sys, settings)
		facts.http = m.http
		wish, err := wishFor(facts, device, options)
		if err != nil {
			return err
		}
		result, err = m.writeBoot(ctx, c, facts, wish)
		return err
	})
	return result, err
}

// bootDocuments reads the system and, when it has one that takes a boot override, its settings object.
func (c *conn) bootDocuments(ctx context.Context) (sys, settings *document, err error) {
	if sys, err = c.findSystem(ctx); err != nil {
		return nil, nil, err
	}
	settings, err = c.find(ctx, sys.link("@Redfish.Settings", "SettingsObject"))
	return sys, settings, err
}

// writeBoot tries the forms until one is taken and still there after the settling time.
func (m management) writeBoot(ctx *driver.Context, c *conn, facts bootFacts, w bootWish) (driver.BootResult, error) {
	var refused *driver.Error
	var last driver.BootResult
	for _, form := range c.bestFirst(planBoot(facts, w)) {
		for range bootWrites {
			f, err := m.writeForm(ctx, c, form)
			if err != nil {
				return last, err
			}
			if f != nil {
				refused = f.err("the boot device")
				if f.status == http.StatusUnauthorized || f.status == http.StatusForbidden {
					return last, refused
				}
				break
			}
			shown, stuck, err := m.readBoot(ctx, c, w, c.keeps(form, w))
			if err != nil {
				return last, err
			}
			if last = shown; stuck {
				last.Form = form.label()
				c.noteKept(form, w)
				return last, nil
			}
			refused = nil
		}
	}
	if refused != nil {
		return last, refused
	}
	return last, driver.Errorf(driver.CodeNotApplied, "the BMC accepted boot from %s and did not keep it: it shows target %q, enabled %q, mode %q; "+
		"set the boot order in the machine's firmware, or update the BMC", w.target, clip(last.Target, 40), clip(last.Enabled, 40), clip(last.Mode, 40))
}

// bestFirst puts the form that this BMC took last time in front.
func (c *conn) bestFirst(plan []bootForm) []bootForm {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(plan, func(a, b bootForm) int {
		switch c.form {
		case a.label():
			return -1
		case b.label():
			return 1
		}
		return 0
	})
	return plan
}

// noteKept remembers that this BMC took a form, and kept what it said through the settling time.
func (c *conn) noteKept(form bootForm, w bootWish) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.form = form.label()
	if !slices.Contains(c.kept, c.form+" "+w.enabled) {
		c.kept = append(c.kept, c.form+" "+w.enabled)
	}
}

// keeps reports whether this BMC was seen to keep such a setting. One that takes settings back does so with each of them.
func (c *conn) keeps(form bootForm, w bootWish) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.kept, form.label()+" "+w.enabled)
}

// writeForm patches one form onto a fresh copy of its resource, for the entity tag. A refusal is returned as a fault.
func (m management) writeForm(ctx *driver.Context, c *conn, form bootForm) (*fault, error) {
	sys, settings, err := c.bootDocuments(ctx)
	if err != nil {
		return nil, err
	}
	doc := sys
	if form.settings {
		if doc = settings; doc == nil {
			return &fault{status: http.StatusNotFound}, nil
		}
	}
	r, err := m.patch(ctx, c, doc, map[string]any{"Boot": form.boot})
	if err != nil || r.status < 300 {
		return nil, err
	}
	f := parseFault(r)
	m.log.Info("BMC refused a form of the boot override", "bmc", c.target.origin, "form", form.label(), "answer", f.text())
	return &f, nil
}

// readBoot reads until the wish shows, then, unless the BMC is known to keep such settings, once more after the settling
// time: some BMCs take a setting back.
func (m management) readBoot(ctx *driver.Context, c *conn, w bootWish, keeps bool) (shown driver.BootResult, stuck bool, err error) {
	seen := 0
	for range bootReads {
		sys, settings, err := c.bootDocuments(ctx)
		if err != nil {
			return shown, false, err
		}
		shown = bootShown(sys)
		ok := w.shownBy(shown)
		if pending := bootShown(settings); !ok && w.shownBy(pending) {
			shown, ok = pending, true
			shown.Notes = append(shown.Notes, "the BMC holds the setting for the next start of the machine")
		}
		if ok {
			if seen++; seen == 2 || keeps {
				return shown, true, nil
			}
		} else if seen > 0 {
			return shown, false, nil
		}
		if err := m.pause(ctx, settle); err != nil {
			return shown, false, err
		}
	}
	return shown, false, nil
}

func bootShown(d *document) driver.BootResult {
	return driver.BootResult{
		Target:  d.text("Boot", "BootSourceOverrideTarget"),
		Enabled: d.text("Boot", "BootSourceOverrideEnabled"),
		Mode:    d.text("Boot", "BootSourceOverrideMode"),
	}
}

// shownBy compares a wish with what a BMC shows.
func (w bootWish) shownBy(r driver.BootResult) bool {
	if w.enabled == string(schemas.DisabledBootSourceOverrideEnabled) {
		return strings.EqualFold(r.Enabled, w.enabled) || strings.EqualFold(r.Target, w.target)
	}
	return strings.EqualFold(r.Target, w.target) &&
		(quirkReadsAsNothing(r.Enabled) || strings.EqualFold(r.Enabled, w.enabled)) &&
		(w.mode == "" || quirkReadsAsNothing(r.Mode) || strings.EqualFold(r.Mode, w.mode))
}
