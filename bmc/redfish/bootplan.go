package redfish

import (
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/bcd/plugins/driver"
)

// bootFacts is what decides how a boot override is written.
type bootFacts struct {
	maker         string   // lower case
	http          bool     // the operator wants UEFI HTTP Boot where the network is booted
	targets       []string // allowed values; nil: the BMC does not say
	enabledValues []string
	modes         []string
	target        string // present values; "" when null or absent
	enabled       string
	mode          string
	systemPath    string
	settingsPath  string // the settings object, when it has the override's members
}

// bootWish is what the caller wants, in Redfish's words.
type bootWish struct {
	target  string
	enabled string
	mode    string // "" leaves it alone
}

// bootForm is one way to write an override.
type bootForm struct {
	name     string // "changed", "full", "bare"
	settings bool   // to the settings object
	boot     map[string]any
}

// label names a form for the capability card.
func (f bootForm) label() string {
	if f.settings {
		return "settings-" + f.name
	}
	return f.name
}

// bootFactsOf gathers the facts from a system and its settings object, which may be nil.
func bootFactsOf(maker string, sys, settings *document) bootFacts {
	f := bootFacts{
		maker:         maker,
		systemPath:    sys.path,
		target:        sys.text("Boot", "BootSourceOverrideTarget"),
		enabled:       sys.text("Boot", "BootSourceOverrideEnabled"),
		mode:          sys.text("Boot", "BootSourceOverrideMode"),
		targets:       sys.texts("Boot", "BootSourceOverrideTarget@Redfish.AllowableValues"),
		enabledValues: sys.texts("Boot", "BootSourceOverrideEnabled@Redfish.AllowableValues"),
		modes:         sys.texts("Boot", "BootSourceOverrideMode@Redfish.AllowableValues"),
	}
	if boot := settings.object("Boot"); boot != nil {
		if _, has := boot.body["BootSourceOverrideTarget"]; has {
			f.settingsPath = settings.path
			if allowed := settings.texts("Boot", "BootSourceOverrideTarget@Redfish.AllowableValues"); f.targets == nil {
				f.targets = allowed
			}
		}
	}
	return f
}

// bootWords are the names BMCs use for a device, best first. Supermicro calls the virtual CD UsbCd on most boards.
func bootWords(device driver.BootDevice, http bool) []string {
	switch device {
	case driver.BootPXE:
		if http {
			return []string{string(schemas.UefiHTTPBootSource)}
		}
		return []string{string(schemas.PxeBootSource)}
	case driver.BootDisk:
		return []string{string(schemas.HddBootSource)}
	case driver.BootCDROM:
		return []string{"UsbCd", string(schemas.CdBootSource), "UefiUsbCd", "CD/DVD"}
	case driver.BootBIOS:
		return []string{string(schemas.BiosSetupBootSource)}
	case driver.BootNone:
		return []string{string(schemas.NoneBootSource)}
	}
	return nil
}

// wishFor turns a request into Redfish's words, or says why this BMC cannot do it.
func wishFor(f bootFacts, device driver.BootDevice, o driver.BootOptions) (bootWish, error) {
	words := bootWords(device, f.http)
	if words == nil {
		return bootWish{}, driver.Errorf(driver.CodeInvalidArgs, "the boot device must be pxe, disk, cdrom, bios or none, not %q", clip(string(device), 40))
	}
	w := bootWish{target: words[0], enabled: string(schemas.OnceBootSourceOverrideEnabled)}
	if device == driver.BootCDROM && f.targets == nil {
		w.target = string(schemas.CdBootSource)
	}
	if f.targets != nil && device != driver.BootNone {
		place := string(device)
		if f.http && device == driver.BootPXE {
			place = "the network by UEFI HTTP Boot"
		}
		i := slices.IndexFunc(words, func(s string) bool { return slices.Contains(f.targets, s) })
		if i < 0 {
			return bootWish{}, driver.Errorf(driver.CodeUnsupported, "the BMC cannot boot from %s; it offers %s", place, clip(strings.Join(f.targets, ", "), 200))
		}
		w.target = words[i]
	}
	switch {
	case device == driver.BootNone:
		w.enabled = string(schemas.DisabledBootSourceOverrideEnabled)
		return w, nil
	case o.Persistent:
		w.enabled = string(schemas.ContinuousBootSourceOverrideEnabled)
		if f.enabledValues != nil && !slices.Contains(f.enabledValues, w.enabled) {
			return bootWish{}, driver.Errorf(driver.CodeUnsupported, "the BMC keeps a boot device for one boot only; ask without persistent before each boot")
		}
	}
	err := modeFor(f, o, &w)
	return w, err
}

// modeFor adds the boot mode that was asked for.
func modeFor(f bootFacts, o driver.BootOptions, w *bootWish) error {
	if w.target == string(schemas.UefiHTTPBootSource) && (o.UEFI == nil || !*o.UEFI) {
		if o.UEFI != nil {
			return driver.Errorf(driver.CodeUnsupported, "a machine that boots as BIOS has no UEFI HTTP Boot; take networkBoot out of the BMC's options, or set the machine's firmware to UEFI")
		}
		uefi := true
		o.UEFI = &uefi
	}
	if o.UEFI == nil {
		return nil
	}
	w.mode = string(schemas.LegacyBootSourceOverrideMode)
	if *o.UEFI {
		w.mode = string(schemas.UEFIBootSourceOverrideMode)
	}
	if f.modes != nil && !slices.Contains(f.modes, w.mode) {
		return driver.Errorf(driver.CodeUnsupported, "the BMC cannot boot in %s mode; it offers %s", w.mode, clip(strings.Join(f.modes, ", "), 80))
	}
	return nil
}

// planBoot lists the forms to try, best first. It decides from facts alone: the fewest members that say what is wanted,
// then the whole set, then without the mode; the whole set first for makers that need it; the settings object first
// where it carries the override, and the system after it.
func planBoot(f bootFacts, w bootWish) []bootForm {
	if w.enabled == string(schemas.DisabledBootSourceOverrideEnabled) {
		return planClear(f, w)
	}
	changed := map[string]any{"BootSourceOverrideTarget": w.target}
	if !strings.EqualFold(f.enabled, w.enabled) {
		changed["BootSourceOverrideEnabled"] = w.enabled // equal to the present value it is an error on some
	}
	if w.mode != "" && !strings.EqualFold(f.mode, w.mode) {
		changed["BootSourceOverrideMode"] = w.mode // read only on iLO 5 and 6, so sent when it must change only
	}
	bare := map[string]any{"BootSourceOverrideTarget": w.target, "BootSourceOverrideEnabled": w.enabled}
	full := map[string]any{"BootSourceOverrideTarget": w.target, "BootSourceOverrideEnabled": w.enabled}
	if mode := firstOf(w.mode, f.mode); mode != "" {
		full["BootSourceOverrideMode"] = mode
	}
	forms := []bootForm{{name: "changed", boot: changed}, {name: "full", boot: full}, {name: "bare", boot: bare}}
	if quirkFullBoot(f.maker) {
		forms[0], forms[1] = forms[1], forms[0]
	}
	return onPaths(f, forms)
}

// planClear lists the forms that remove an override. HPE refuses Once with target None; Fujitsu has no Disabled.
func planClear(f bootFacts, w bootWish) []bootForm {
	var forms []bootForm
	if f.enabledValues == nil || slices.Contains(f.enabledValues, w.enabled) {
		forms = append(forms,
			bootForm{name: "changed", boot: map[string]any{"BootSourceOverrideEnabled": w.enabled}},
			bootForm{name: "full", boot: map[string]any{"BootSourceOverrideEnabled": w.enabled, "BootSourceOverrideTarget": w.target}})
	}
	forms = append(forms, bootForm{name: "bare", boot: map[string]any{"BootSourceOverrideTarget": w.target}})
	return onPaths(f, forms)
}

// onPaths drops forms that repeat an earlier one and adds the settings object's turn.
func onPaths(f bootFacts, forms []bootForm) []bootForm {
	var out []bootForm
	for _, settings := range []bool{true, false} {
		if settings && f.settingsPath == "" {
			continue
		}
		from := len(out)
		for _, form := range forms {
			same := func(o bootForm) bool { return sameMembers(o.boot, form.boot) }
			if form.settings = settings; !slices.ContainsFunc(out[from:], same) {
				out = append(out, form)
			}
		}
	}
	return out
}

func sameMembers(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func firstOf(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}
