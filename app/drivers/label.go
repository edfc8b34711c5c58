package drivers

import (
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// LabelPrefix is reserved: only drivers, ramdisks and capability cards set labels below it.
const LabelPrefix = "bc.dev/"

// maxKindLabels of one driver are advertised.
const maxKindLabels = 32

var labelKindRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Labels are those of one driver: bc.dev/driver.ID=VERSION, bc.dev/driver-kind.ID.KIND=1 and bc.dev/cap.CAPABILITY=1.
func Labels(d *driver.Driver) map[string]string {
	out := map[string]string{LabelPrefix + "driver." + d.ID(): d.Version()}
	n := 0
	for _, kind := range d.Kinds() {
		if labelKindRE.MatchString(kind) && n < maxKindLabels {
			out[LabelPrefix+"driver-kind."+d.ID()+"."+kind] = "1"
			n++
		}
	}
	for _, c := range d.Capabilities() {
		out[LabelPrefix+"cap."+c] = "1"
	}
	return out
}

// SiteLabels are those of the active drivers that run on this site and are up. Every call of a driver on the site is held
// against them: when its workflow is planned, and right before it is made.
func (r *Registry) SiteLabels() map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[string]string{}
	for _, e := range r.entries {
		if d := e.driver; e.onSite() && r.activeLocked(d.ID()).driver == d {
			maps.Copy(out, Labels(d))
		}
	}
	return out
}

// Label puts the labels on a machine that it carries now: its operator's own, and those of its bound drivers, of the
// ramdisk that it ran last and of its capability card. Reserved ones that nobody advertises any more go.
func (r *Registry) Label(m *app.Machine) {
	out := map[string]string{}
	for k, v := range m.Labels {
		if !strings.HasPrefix(k, LabelPrefix) {
			out[k] = v
		}
	}
	for _, b := range m.Drivers {
		if d, err := r.Driver(b.Driver); err == nil {
			maps.Copy(out, Labels(d))
		}
	}
	maps.Copy(out, m.Ramdisk)
	var card driver.Card
	if len(m.Card) > 0 && json.Unmarshal(m.Card, &card) == nil {
		maps.Copy(out, cardLabels(&card))
	}
	m.Labels = nil
	if len(out) > 0 {
		m.Labels = out
	}
}

// cardLabels name what a probe found.
func cardLabels(c *driver.Card) map[string]string {
	out := map[string]string{}
	if len(c.Media) > 0 {
		out[LabelPrefix+"cap.virtual-media"] = "1"
	}
	if c.Boot.Form != "" {
		out[LabelPrefix+"cap.boot-override"] = "1"
	}
	for _, a := range c.PowerActions {
		out[LabelPrefix+"cap.power-"+a] = "1"
	}
	return out
}
