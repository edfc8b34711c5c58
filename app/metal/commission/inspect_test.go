package commission

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Two inspections, one result, each value with its source.
func TestInspectionsMerge(t *testing.T) {
	const uuid = "00112233-4455-6677-8899-aabbccddeeff"
	bmc := driver.Inventory{Manufacturer: "Contoso", Model: "R1", SerialNumber: "BMC-7", ProductUUID: uuid}
	m := &app.Machine{Name: "node1", BMC: &app.BMC{Driver: "ipmi"}, Vendor: "Contoso", Serial: "BMC-7", Sources: map[string]string{"vendor": "ipmi", "serial": "ipmi"}}
	inside := &agentv1.Inventory{System: agentv1.System{Manufacturer: "Contoso Ltd", Product: "R1 Gen2", Serial: "To be filled by O.E.M."}}
	if err := Apply(m, inside); err != nil {
		t.Fatal(err)
	}
	if m.Vendor != "Contoso Ltd" || m.Sources["vendor"] != "ramdisk" || m.Model != "R1 Gen2" || m.Serial != "BMC-7" || m.Sources["serial"] != "ipmi" {
		t.Errorf("from inside: %q %q %q %v", m.Vendor, m.Model, m.Serial, m.Sources)
	}
	if d := merge(m, bmc); len(d) != 0 || m.UUID != uuid || m.Sources["productUuid"] != "ipmi" || m.Model != "R1 Gen2" || m.Sources["model"] != "ramdisk" {
		t.Errorf("merged: %q %+v %v", d, m, m.Sources)
	}
	inside.System.Serial, inside.System.UUID = "HOST-1", uuid
	if err := Apply(m, inside); err != nil {
		t.Fatal(err)
	}
	if d := merge(m, bmc); len(d) != 1 || !strings.Contains(d[0], "BMC-7") || m.Serial != "HOST-1" || m.Sources["serial"] != "ramdisk" {
		t.Errorf("where both speak: %q, serial %q from %s", d, m.Serial, m.Sources["serial"])
	}
	other := bmc
	other.ProductUUID = "99999999-4455-6677-8899-aabbccddeeff"
	if d := merge(m, other); len(d) != 2 || m.UUID != uuid {
		t.Errorf("another UUID: %q", d)
	}
}
