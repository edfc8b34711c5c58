package baseline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
)

// raidOff says how the volumes differ from the layout.
func (s *Steps) raidOff(ctx context.Context, w want, h *drivers.Handle) ([]string, error) {
	if w.RAID == nil {
		return nil, nil
	}
	raw, err := h.Query(ctx, "raid.getLayout")
	if err != nil {
		return nil, err
	}
	var have driver.RAIDLayout
	if err := decode("raid.getLayout", raw, &have); err != nil {
		return nil, err
	}
	return differ(w.RAID.Volumes, have.Volumes), nil
}

// differ lists the wanted volumes that are not there, and those there that nobody wants.
func differ(want []app.RAIDVolume, have []driver.RAIDVolume) []string {
	left := slices.Clone(have)
	var out []string
	for i, v := range want {
		at := slices.IndexFunc(left, func(h driver.RAIDVolume) bool { return is(v, h) })
		if at < 0 {
			out = append(out, fmt.Sprintf("volume %d of level %s is missing", i+1, v.Level))
			continue
		}
		left = slices.Delete(left, at, at+1)
	}
	if len(left) > 0 {
		out = append(out, fmt.Sprintf("%d volumes are there that the layout does not have", len(left)))
	}
	return out
}

// is reports whether a volume is the wanted one. What the layout leaves open fits anything.
func is(v app.RAIDVolume, h driver.RAIDVolume) bool {
	return strings.EqualFold(v.Level, h.Level) && (v.Name == "" || v.Name == h.Name) && (v.Controller == "" || v.Controller == h.Controller) &&
		(v.SizeBytes == 0 || v.SizeBytes == h.SizeBytes) && (len(v.Drives) == 0 || sameSet(v.Drives, h.Drives)) && (!v.Bootable || h.Bootable)
}

func sameSet(a, b []string) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func (s *Steps) raid(ctx context.Context, c workflow.StepContext) (any, error) {
	w, h, err := s.open(ctx, c)
	if err != nil {
		return nil, err
	}
	off, err := s.raidOff(ctx, w, h)
	if err != nil {
		return nil, err
	}
	if len(off) == 0 {
		c.Log("all %d volumes are as they shall be", len(w.RAID.Volumes))
		return nil, nil
	}
	c.Log("making the volumes: %s", strings.Join(off, "; "))
	layout := driver.RAIDLayout{}
	for _, v := range w.RAID.Volumes {
		layout.Volumes = append(layout.Volumes, driver.RAIDVolume(v))
	}
	return h.ApplyRAID(ctx, layout)
}

// firmwareOff lists the components that have another version than the baseline.
func (s *Steps) firmwareOff(ctx context.Context, w want, h *drivers.Handle) ([]string, error) {
	behind, err := components(ctx, w, h)
	var out []string
	for _, f := range behind {
		out = append(out, "firmware of "+f.Component+" is not "+f.Version)
	}
	return out, err
}

func components(ctx context.Context, w want, h *drivers.Handle) ([]app.FirmwareBaseline, error) {
	if len(w.Firmware) == 0 {
		return nil, nil
	}
	raw, err := h.Query(ctx, "firmware.components")
	if err != nil {
		return nil, err
	}
	var have []driver.FirmwareComponent
	if err := decode("firmware.components", raw, &have); err != nil {
		return nil, err
	}
	var behind []app.FirmwareBaseline
	for _, f := range w.Firmware {
		at := slices.IndexFunc(have, func(c driver.FirmwareComponent) bool { return c.ID == f.Component })
		if at < 0 {
			return nil, app.Errorf(app.InvalidConfig, "unknown-component", "the machine has no component %q", f.Component).
				At("firmwareBaseline").Do("see what it has: bcd machine query MACHINE firmware.components")
		}
		if have[at].Version != f.Version {
			behind = append(behind, f)
		}
	}
	return behind, nil
}

func (s *Steps) firmware(ctx context.Context, c workflow.StepContext) (any, error) {
	w, h, err := s.open(ctx, c)
	if err != nil {
		return nil, err
	}
	behind, err := components(ctx, w, h)
	if err != nil {
		return nil, err
	}
	for _, f := range behind {
		if f.URL == "" {
			return nil, app.Errorf(app.Conflict, "firmware-differs", "%s does not have the version %s of its baseline", f.Component, f.Version).
				Do("name an image for it in the profile, or update it by hand")
		}
	}
	done := []string{}
	for _, f := range behind {
		c.Log("bringing %s to %s", f.Component, f.Version)
		if _, err := h.UpdateFirmware(ctx, f.Component, driver.FirmwareImage{URL: f.URL, SHA256: f.SHA256}); err != nil {
			return nil, err
		}
		done = append(done, f.Component)
	}
	return map[string][]string{"updated": done}, nil
}
