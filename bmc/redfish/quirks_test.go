package redfish

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

func TestQuirkPowerOnChassis(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.Power = "" // the system shows none
	bmc.Doc("/redfish/v1/Chassis/1")["PowerState"] = "Off"
	r := newRig(t, bmc)
	var p driver.PowerReading
	if err := json.Unmarshal(r.must(t, "power", "getPower", "[]"), &p); err != nil || p.Power != "off" {
		t.Errorf("%+v, %v", p, err)
	}
	bmc.Do(func() { delete(bmc.Doc("/redfish/v1/Chassis/1"), "PowerState") })
	if err := json.Unmarshal(r.must(t, "power", "getPower", "[]"), &p); err != nil || p.Power != "unknown" || p.Reason == "" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestQuirkHostLink(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	nic := bmc.Doc(bmctest.SystemPath + "/EthernetInterfaces/2")
	nic["MACAddress"], nic["Links"] = "00:00:5e:00:53:99", map[string]any{"HostInterface": map[string]any{"@odata.id": "/redfish/v1/Managers/1/HostInterfaces/1"}}
	var inv driver.Inventory
	if err := json.Unmarshal(newRig(t, bmc).must(t, "inspect", "inspect", "[]"), &inv); err != nil || !slices.Equal(inv.MACs, []string{"00:00:5e:00:53:01"}) {
		t.Errorf("MACs %v, %v", inv.MACs, err)
	}
}

func TestQuirkFullBoot(t *testing.T) {
	for maker, want := range map[string]bool{
		"supermicro": true, "super micro computer": true, "asrockrack": true, "giga-byte technology": true, "quanta cloud technology inc.": true,
		"ami": true, "amiga": false, "dell inc.": false, "hpe": false, "": false,
	} {
		if got := quirkFullBoot(maker); got != want {
			t.Errorf("%q: %v", maker, got)
		}
	}
}

// The first key met wins over its other spellings: iLO 4 gives MacAddress and MACAddress.
func TestMACSpellings(t *testing.T) {
	for name, nic := range map[string]map[string]any{
		"permanent first": {"PermanentMACAddress": "00-00-5E-00-53-07", "MACAddress": "00:00:5e:00:53:08"},
		"iLO 4":           {"MacAddress": "00:00:5E:00:53:07"},
		"bare digits":     {"MACAddress": "00005E005307"},
		"placeholder":     {"PermanentMACAddress": "00:00:00:00:00:00", "MACAddress": "00:00:5e:00:53:07"},
	} {
		bmc := bmctest.NewRedfish(t)
		d := bmc.Doc(bmctest.SystemPath + "/EthernetInterfaces/1")
		delete(d, "MACAddress")
		for k, v := range nic {
			d[k] = v
		}
		var inv driver.Inventory
		if err := json.Unmarshal(newRig(t, bmc).must(t, "inspect", "inspect", "[]"), &inv); err != nil || !slices.Equal(inv.MACs, []string{"00:00:5e:00:53:07"}) {
			t.Errorf("%s: MACs %v, %v", name, inv.MACs, err)
		}
	}
}
