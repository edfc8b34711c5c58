package redfish

import (
	"net/http"

	"github.com/better-compute/bcd/plugins/driver"
)

// Eject empties the machine's virtual CD drives. What a person put in through a remote console stays: it is not ours.
func (m media) Eject(ctx *driver.Context) error {
	return m.use(ctx, writeLimit, func(ctx *driver.Context, c *conn) error {
		all, err := c.cdDrives(ctx, "")
		if err != nil {
			return err
		}
		for _, d := range all {
			if !d.full() || d.byConsole() {
				continue
			}
			if err := m.empty(ctx, c, d); err != nil {
				return hiding(err, d.image())
			}
		}
		return nil
	})
}

// empty ejects what a drive holds and returns when it shows empty: an iDRAC says inserted for a while after it.
func (m media) empty(ctx *driver.Context, c *conn, d drive) error {
	ctx.Emit(driver.Progress{Phase: "media", Message: "asking the BMC to eject " + d.id})
	var refused *fault
	for _, form := range ejections(d) {
		now, err := c.drive(ctx, d.path)
		if err != nil || !now.full() {
			return err
		}
		r, err := m.eject(ctx, c, now, form)
		if err != nil && (driver.AsError(err).Code != driver.CodeTimeout || ctx.Err() != nil) {
			return err
		}
		if err == nil && r.status >= 300 {
			f := parseFault(r)
			if f.status == http.StatusUnauthorized || f.status == http.StatusForbidden {
				return f.err("ejecting the medium")
			}
			refused = &f
			continue
		}
		if err == nil {
			if err := m.follow(ctx, c, r, "ejecting the medium"); err != nil {
				return err
			}
		}
		return m.awaitEmpty(ctx, c, d.path)
	}
	if now, err := c.drive(ctx, d.path); err != nil || !now.full() {
		return err
	}
	return refused.err("ejecting the medium")
}

// ejection is one way to empty a drive: an action's address, or members to write.
type ejection struct {
	target string
	patch  map[string]any
}

// ejections lists the ways, best first. The Supermicro X13 names no action to eject while nothing is inserted.
func ejections(d drive) []ejection {
	var out []ejection
	if t := d.text("Actions", ejectAction, "target"); t != "" {
		out = append(out, ejection{target: t})
	}
	return append(out, ejection{patch: map[string]any{"Image": nil}}, ejection{patch: map[string]any{"Inserted": false}}, ejection{patch: map[string]any{"Image": ""}})
}

// eject asks once. iLO answers an action without a body with 415, so that there is always one.
func (m media) eject(ctx *driver.Context, c *conn, d drive, e ejection) (*response, error) {
	if e.target != "" {
		return c.send(ctx, http.MethodPost, e.target, map[string]any{}, nil)
	}
	return m.patch(ctx, c, d.document, e.patch)
}

func (m media) awaitEmpty(ctx *driver.Context, c *conn, at string) error {
	for range mediaReads {
		d, err := c.drive(ctx, at)
		if err == nil && !d.full() {
			return nil
		}
		if err != nil && !driver.AsError(err).Retryable {
			return err
		}
		if err := m.pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return driver.Errorf(driver.CodeNotApplied, "the BMC accepted the ejection and still shows the medium").Again()
}
