package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// forms writes a plan as text: one form a line.
func forms(plan []bootForm) string {
	var out []string
	for _, f := range plan {
		b, _ := json.Marshal(f.boot)
		s := strings.NewReplacer("BootSourceOverride", "", `"`, "", "{", "", "}", "").Replace(string(b))
		out = append(out, f.label()+" "+s)
	}
	return strings.Join(out, "\n")
}

// The decision how to write an override, from facts of named machines.
func TestPlanBoot(t *testing.T) {
	yes, no := true, false
	off := bootFacts{enabled: "Disabled", target: "None", mode: "UEFI"}
	with := func(change func(*bootFacts)) bootFacts { f := off; change(&f); return f }
	for name, c := range map[string]struct {
		facts  bootFacts
		device driver.BootDevice
		o      driver.BootOptions
		want   string
	}{
		"iDRAC 9": {off, driver.BootPXE, driver.BootOptions{}, `
changed Enabled:Once,Target:Pxe
full Enabled:Once,Mode:UEFI,Target:Pxe`},
		"iLO 5: the mode is read only, so not sent when it is right": {off, driver.BootPXE, driver.BootOptions{UEFI: &yes}, `
changed Enabled:Once,Target:Pxe
full Enabled:Once,Mode:UEFI,Target:Pxe`},
		"the mode must change": {off, driver.BootDisk, driver.BootOptions{UEFI: &no, Persistent: true}, `
changed Enabled:Continuous,Mode:Legacy,Target:Hdd
bare Enabled:Continuous,Target:Hdd`},
		"iDRAC 8 shows Once always: an unchanged member is not sent": {bootFacts{enabled: "Once", target: "None"}, driver.BootPXE, driver.BootOptions{}, `
changed Target:Pxe
full Enabled:Once,Target:Pxe`},
		"Supermicro X13": {with(func(f *bootFacts) { f.maker = "supermicro"; f.targets = []string{"None", "Pxe", "Cd", "UsbCd"} }),
			driver.BootCDROM, driver.BootOptions{UEFI: &yes}, `
full Enabled:Once,Mode:UEFI,Target:UsbCd
changed Enabled:Once,Target:UsbCd`},
		"AMI": {with(func(f *bootFacts) { f.maker = "quanta cloud technology inc."; f.mode = "Legacy" }), driver.BootPXE, driver.BootOptions{}, `
full Enabled:Once,Mode:Legacy,Target:Pxe
changed Enabled:Once,Target:Pxe`},
		"iDRAC 10: the settings object first": {with(func(f *bootFacts) { f.settingsPath = "/redfish/v1/Systems/1/Settings" }), driver.BootPXE, driver.BootOptions{}, `
settings-changed Enabled:Once,Target:Pxe
settings-full Enabled:Once,Mode:UEFI,Target:Pxe
changed Enabled:Once,Target:Pxe
full Enabled:Once,Mode:UEFI,Target:Pxe`},
		"Fujitsu iRMC S4 reads null": {bootFacts{enabledValues: []string{"Once", "Continuous"}, target: "None"}, driver.BootPXE, driver.BootOptions{}, `
changed Enabled:Once,Target:Pxe`},
		"Fujitsu iRMC S4 has no Disabled": {bootFacts{enabledValues: []string{"Once", "Continuous"}, target: "Pxe"}, driver.BootNone, driver.BootOptions{}, `
bare Target:None`},
		"clearing: iLO refuses Once with None": {with(func(f *bootFacts) { f.enabled = "Once"; f.target = "Pxe" }), driver.BootNone, driver.BootOptions{}, `
changed Enabled:Disabled
full Enabled:Disabled,Target:None
bare Target:None`},
		"HTTP boot: the mode is UEFI, said or not": {with(func(f *bootFacts) { f.http = true; f.mode = "Legacy"; f.targets = []string{"None", "Pxe", "UefiHttp"} }), driver.BootPXE, driver.BootOptions{}, `
changed Enabled:Once,Mode:UEFI,Target:UefiHttp
bare Enabled:Once,Target:UefiHttp`},
		"HTTP boot is for the network only": {with(func(f *bootFacts) { f.http = true }), driver.BootDisk, driver.BootOptions{}, `
changed Enabled:Once,Target:Hdd
full Enabled:Once,Mode:UEFI,Target:Hdd`},
		"no list of targets": {bootFacts{}, driver.BootCDROM, driver.BootOptions{}, `
changed Enabled:Once,Target:Cd`},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := wishFor(c.facts, c.device, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if got := forms(planBoot(c.facts, w)); got != strings.TrimSpace(c.want) {
				t.Errorf("plan:\n%s\nwant:%s", got, c.want)
			}
		})
	}
}

func TestWishRefusals(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		facts  bootFacts
		device driver.BootDevice
		o      driver.BootOptions
		code   string
	}{
		"no such device":       {bootFacts{}, "moon", driver.BootOptions{}, driver.CodeInvalidArgs},
		"target not offered":   {bootFacts{targets: []string{"None", "Pxe"}}, driver.BootBIOS, driver.BootOptions{}, driver.CodeUnsupported},
		"Lenovo: not for good": {bootFacts{enabledValues: []string{"Once", "Disabled"}}, driver.BootPXE, driver.BootOptions{Persistent: true}, driver.CodeUnsupported},
		"no HTTP boot":         {bootFacts{http: true, targets: []string{"None", "Pxe"}}, driver.BootPXE, driver.BootOptions{}, driver.CodeUnsupported},
		"HTTP boot of a BIOS":  {bootFacts{http: true}, driver.BootPXE, driver.BootOptions{UEFI: &no}, driver.CodeUnsupported},
		"legacy only":          {bootFacts{modes: []string{"Legacy"}}, driver.BootPXE, driver.BootOptions{UEFI: &yes}, driver.CodeUnsupported},
	} {
		_, err := wishFor(c.facts, c.device, c.o)
		if e := driver.AsError(err); e == nil || e.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

// patchRefused answers PATCHes whose Boot object the judge does not like.
func patchRefused(bmc *bmctest.Redfish, judge func(path string, boot map[string]any) string) {
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, body map[string]any) bool {
		boot, ok := body["Boot"].(map[string]any)
		if q.Method != http.MethodPatch || !ok {
			return false
		}
		if why := judge(q.URL.Path, boot); why != "" {
			bmctest.Fail(w, http.StatusBadRequest, "Base.1.8."+why, why)
			return true
		}
		return false
	}
}

func TestBootFormsOfRealFirmware(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		set    func(*bmctest.Redfish)
		judge  func(path string, boot map[string]any) string
		form   string
		writes int
	}{
		"iLO: mode read only": {`["pxe",{"uefi":true}]`, nil, func(_ string, b map[string]any) string {
			if b["BootSourceOverrideMode"] != nil {
				return "PropertyNotWritable"
			}
			return ""
		}, "changed", 1},
		"ASRock Rack: wants everything": {`["pxe"]`, func(b *bmctest.Redfish) { b.Doc(bmctest.SystemPath)["Manufacturer"] = "ASRockRack" }, func(_ string, b map[string]any) string {
			if len(b) < 3 {
				return "PropertyMissing"
			}
			return ""
		}, "full", 1},
		"unknown maker that wants everything": {`["pxe"]`, nil, func(_ string, b map[string]any) string {
			if len(b) < 3 {
				return "PropertyMissing"
			}
			return ""
		}, "full", 2},
		"no unchanged members": {`["pxe"]`, func(b *bmctest.Redfish) { b.Boot()["BootSourceOverrideEnabled"] = "Once" }, func(_ string, b map[string]any) string {
			if b["BootSourceOverrideEnabled"] == "Once" {
				return "PropertyValueConflict"
			}
			return ""
		}, "changed", 1},
		"iDRAC 10: settings object only": {`["pxe"]`, func(b *bmctest.Redfish) {
			b.Doc(bmctest.SystemPath)["@Redfish.Settings"] = map[string]any{"SettingsObject": map[string]any{"@odata.id": bmctest.SystemPath + "/Settings"}}
			b.Doc(bmctest.SystemPath + "/Settings")["Boot"] = map[string]any{"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"}
		}, func(path string, _ map[string]any) string {
			if path == bmctest.SystemPath {
				return "PropertyNotWritable"
			}
			return ""
		}, "settings-changed", 1},
		"Lenovo: settings object without the override": {`["pxe"]`, func(b *bmctest.Redfish) {
			b.Doc(bmctest.SystemPath)["@Redfish.Settings"] = map[string]any{"SettingsObject": map[string]any{"@odata.id": bmctest.SystemPath + "/Pending"}}
			b.Doc(bmctest.SystemPath + "/Pending")["Boot"] = map[string]any{"BootOrder": []any{"Boot0001"}}
		}, func(path string, _ map[string]any) string {
			if path != bmctest.SystemPath {
				return "PropertyUnknown"
			}
			return ""
		}, "changed", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			if c.set != nil {
				c.set(bmc)
			}
			patchRefused(bmc, c.judge)
			r := newRig(t, bmc)
			out := r.must(t, "management", "setBootDevice", c.args)
			if !strings.Contains(string(out), `"form":"`+c.form+`"`) {
				t.Errorf("written as %s, want %s", out, c.form)
			}
			if n := len(bmc.Requests("PATCH")); n != c.writes {
				t.Errorf("%d PATCHes, want %d", n, c.writes)
			}
			r.must(t, "management", "setBootDevice", `["disk"]`)
			if n := len(bmc.Requests("PATCH")); n != c.writes+1 {
				t.Errorf("%d PATCHes the second time, want 1: the form was learned", n-c.writes)
			}
		})
	}
}

// Supermicro says 200 and takes the setting back a moment later.
func TestBootTakenBack(t *testing.T) {
	for _, c := range []struct {
		takeBack int // so many times
		writes   int
		code     string
	}{{1, 2, ""}, {99, 2 * bootWrites, driver.CodeNotApplied}} {
		t.Run(fmt.Sprint(c.takeBack, " times"), func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			bmc.Doc(bmctest.SystemPath)["Manufacturer"] = "Supermicro"
			r := newRig(t, bmc)
			left := c.takeBack
			r.clock.onWait = func(time.Duration) {
				bmc.Do(func() {
					if left > 0 && bmc.Boot()["BootSourceOverrideTarget"] == "Pxe" {
						left--
						bmc.Boot()["BootSourceOverrideTarget"] = "None"
						bmc.Boot()["BootSourceOverrideEnabled"] = "Disabled"
					}
				})
			}
			_, err := r.call("management", "setBootDevice", `["pxe"]`)
			if c.code == "" && err != nil || c.code != "" && (err == nil || err.Code != c.code) {
				t.Fatalf("got %v, want %q", err, c.code)
			}
			if n := len(bmc.Requests("PATCH")); n != c.writes {
				t.Errorf("%d PATCHes, want %d", n, c.writes)
			}
			if err != nil && !strings.Contains(err.Message, `target "None"`) {
				t.Errorf("the error does not say what the BMC shows: %v", err)
			}
		})
	}
}

// A BMC that was seen to keep a form of the override is read back once, without the settling time, from then on.
func TestBootKept(t *testing.T) {
	r := newRig(t, bmctest.NewRedfish(t))
	for _, c := range []struct {
		args string
		wait time.Duration
	}{{`["pxe"]`, settle}, {`["disk"]`, 0}, {`["pxe",{"persistent":true}]`, settle}, {`["disk",{"persistent":true}]`, 0}, {`["pxe"]`, 0}} {
		before := r.clock.waited
		r.must(t, "management", "setBootDevice", c.args)
		if waited := r.clock.waited - before; waited != c.wait {
			t.Errorf("%s waited %s, want %s", c.args, waited, c.wait)
		}
	}
}

// iLO refuses while the host is in POST; it is asked again until POST is over.
func TestBootDuringPOST(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	left := 4
	patchRefused(bmc, func(string, map[string]any) string {
		if left--; left > 0 {
			return "UnableToModifyDuringSystemPOST"
		}
		return ""
	})
	r := newRig(t, bmc)
	r.must(t, "management", "setBootDevice", `["pxe"]`)
	if r.clock.waited < 3*busyPause {
		t.Errorf("waited only %s", r.clock.waited)
	}
}

func TestBootClear(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	r := newRig(t, bmc)
	r.must(t, "management", "setBootDevice", `["pxe",{"persistent":true}]`)
	if e := bmc.Boot()["BootSourceOverrideEnabled"]; e != "Continuous" {
		t.Errorf("enabled is %v", e)
	}
	r.must(t, "management", "setBootDevice", `["none"]`)
	if e := bmc.Boot()["BootSourceOverrideEnabled"]; e != "Disabled" {
		t.Errorf("enabled is %v after clearing", e)
	}
}
