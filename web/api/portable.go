package api

import (
	"encoding/json"
	"math"

	"github.com/better-compute/bcd/app"
)

// Portable is a hardware profile as a file holds it: what an operator wrote, drivers without configuration as bare ids, and
// nothing that the appliance filled in. It marshals to YAML and JSON alike, and can be applied again.
func Portable(p *app.Profile) map[string]any {
	in := ProfileInput{Description: p.Description, BIOS: p.BIOS, RAID: p.RAID, Firmware: p.Firmware, Steps: p.Steps, Tests: p.Commissioning, KernelArgs: p.KernelArgs, BootOrder: p.BootOrder, KexecOK: p.KexecOK}
	out := generic(in)
	out["name"] = p.Name
	if b := PortableBindings(p.Drivers); len(b) > 0 {
		out["drivers"] = b
	}
	return out
}

// PortableBindings are drivers by kind as a file holds them.
func PortableBindings(all map[string]app.Binding) map[string]any {
	out := map[string]any{}
	for kind, b := range all {
		if len(b.Config) == 0 {
			out[kind] = b.Driver
			continue
		}
		out[kind] = generic(app.Binding{Driver: b.Driver, Config: b.Config})
	}
	return out
}

// PortablePool is a pool as a file holds it.
func PortablePool(p *app.Pool) map[string]any {
	out := generic(PoolInput{Description: p.Description, Policy: p.Policy})
	out["name"] = p.Name
	return out
}

// generic gives the members of a value as JSON has them, whole numbers as such.
func generic(v any) map[string]any {
	raw, err := json.Marshal(v)
	if err != nil {
		return map[string]any{}
	}
	var out map[string]any
	if json.Unmarshal(raw, &out) != nil {
		return map[string]any{}
	}
	delete(out, "layer")
	return whole(out).(map[string]any)
}

func whole(v any) any {
	const exact = 1 << 53
	switch t := v.(type) {
	case float64:
		if t == math.Trunc(t) && math.Abs(t) < exact {
			return int64(t)
		}
	case map[string]any:
		for k, e := range t {
			t[k] = whole(e)
		}
	case []any:
		for i, e := range t {
			t[i] = whole(e)
		}
	}
	return v
}
