package drivers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/better-compute/bcd/app"
)

// settingPicks is the setting that keeps the operator's picks: a JSON object of versions by driver id.
const settingPicks = "drivers.active"

// Restore takes up the versions that were picked before the last end. Drivers that are not registered yet are taken up when
// they come.
func (r *Registry) Restore(ctx context.Context) error {
	if r.cfg.Settings == nil {
		return nil
	}
	kept, err := r.cfg.Settings.Setting(ctx, settingPicks)
	if err != nil || kept == "" {
		return err
	}
	picks := map[string]string{}
	if err := json.Unmarshal([]byte(kept), &picks); err != nil {
		return fmt.Errorf("reading the picked versions of drivers: %w", err)
	}
	if picks == nil { // the setting is null
		picks = map[string]string{}
	}
	r.mu.Lock()
	r.picks = picks
	r.mu.Unlock()
	return nil
}

// Pick makes a version of a driver the active one, and keeps that; "" goes back to the highest. A pick outlives its driver:
// while the version is not registered, the highest is active.
func (r *Registry) Pick(ctx context.Context, id, version string) error {
	r.picking.Lock()
	defer r.picking.Unlock()
	picks, err := r.picked(id, version)
	if err != nil {
		return err
	}
	if r.cfg.Settings != nil {
		kept, err := json.Marshal(picks)
		if err != nil {
			return fmt.Errorf("keeping the picked version of %s: %w", id, err)
		}
		if err := r.cfg.Settings.SetSetting(ctx, settingPicks, string(kept)); err != nil {
			return fmt.Errorf("keeping the picked version of %s: %w", id, err)
		}
	}
	r.mu.Lock()
	r.picks = picks
	r.mu.Unlock()
	r.changed()
	return nil
}

// picked is a copy of the picks with one more, or one fewer for "". What was never registered is NOT_FOUND.
func (r *Registry) picked(id, version string) (map[string]string, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	picks := maps.Clone(r.picks)
	if version == "" {
		if _, had := picks[id]; !had && !r.idsLocked()[id] {
			return nil, app.Missing("driver", id)
		}
		delete(picks, id)
		return picks, nil
	}
	if r.entries[id+"@"+version] == nil {
		return nil, app.Missing("driver", id+"@"+version).Do("bcd driver list shows the versions")
	}
	picks[id] = version
	return picks, nil
}
