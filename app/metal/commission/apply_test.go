package commission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/commission"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

const (
	uuid    = "00112233-4455-6677-8899-aabbccddeeff"
	swapped = "33221100-5544-7766-8899-aabbccddeeff"
)

// Case 79: one machine in either byte order; another machine is refused.
func TestApplyKnowsTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		known, found string
		want         app.UUID
		refused      bool
	}{
		"first inventory":    {"", uuid, uuid, false},
		"same":               {uuid, uuid, uuid, false},
		"other order":        {uuid, swapped, swapped, false},
		"upper case":         {uuid, strings.ToUpper(uuid), uuid, false},
		"none in SMBIOS":     {uuid, "", uuid, false},
		"placeholder":        {uuid, "03000200-0400-0500-0006-000700080009", uuid, false},
		"malformed":          {uuid, "not a UUID", uuid, false},
		"another machine":    {uuid, "99999999-4455-6677-8899-aabbccddeeff", uuid, true},
		"two without a UUID": {"", "ffffffff-ffff-ffff-ffff-ffffffffffff", "", false},
	} {
		m := &app.Machine{Name: "node1", UUID: app.UUID(c.known), Serial: "old"}
		err := commission.Apply(m, &agentv1.Inventory{System: agentv1.System{UUID: c.found, Serial: "new"}})
		if c.refused {
			if e, ok := app.AsError(err); !ok || e.Reason != "another-machine" || e.WayOut == "" || m.Serial != "old" {
				t.Errorf("%s: %v, and the machine became %+v", name, err, m)
			}
			continue
		}
		if err != nil || m.UUID != c.want {
			t.Errorf("%s: %q, %v", name, m.UUID, err)
		}
	}
}

// Case 77: what every board says identifies none.
func TestApplyDropsPlaceholders(t *testing.T) {
	for _, s := range []string{"To be filled by O.E.M.", "Default string", "System Serial Number", "0123456789", "Not Specified", "<BAD INDEX>", "", "   ", "None"} {
		m := &app.Machine{Name: "node1", Serial: "kept?"}
		if err := commission.Apply(m, &agentv1.Inventory{System: agentv1.System{Serial: s}}); err != nil || m.Serial != "" {
			t.Errorf("%q is kept as %q, %v", s, m.Serial, err)
		}
	}
}

func TestApplyTakesPortsThatBelongToTheMachine(t *testing.T) {
	m := &app.Machine{Name: "node1", NICs: []app.NIC{{MAC: "00:00:5e:00:53:01", Source: "bmc"}, {MAC: "00:00:5e:00:53:02", Confirmed: true, Boot: true, Source: "operator"}}}
	err := commission.Apply(m, &agentv1.Inventory{NICs: []agentv1.NIC{
		{Name: "eno1", MAC: "00:00:5E:00:53:01", Boot: true},
		{Name: "eno2", MAC: "00-00-5e-00-53-02"},
		{Name: "eno3", MAC: "00:00:5e:00:53:03"},
		{Name: "eno3 again", MAC: "00:00:5e:00:53:03"},
		{Name: "usb0", MAC: "00:00:5e:00:53:04", BMCUSB: true},
		{Name: "bond0", MAC: "00:00:5e:00:53:05", Virtual: true},
		{Name: "bad", MAC: "nonsense"}, {Name: "zero", MAC: "00:00:00:00:00:00"}, {Name: "group", MAC: "01:00:5e:00:00:01"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []app.NIC{
		{MAC: "00:00:5e:00:53:01", Name: "eno1", Confirmed: true, Boot: true, Source: "bmc"},
		{MAC: "00:00:5e:00:53:02", Name: "eno2", Confirmed: true, Source: "operator"},
		{MAC: "00:00:5e:00:53:03", Name: "eno3 again", Confirmed: true, Source: "inventory"},
	}
	if diff := cmp.Diff(want, m.NICs); diff != "" {
		t.Error(diff)
	}
}

func TestApplyIsBounded(t *testing.T) {
	inv := &agentv1.Inventory{
		System: agentv1.System{Manufacturer: strings.Repeat("é", 500), Product: strings.Repeat("x", 1<<20), Serial: strings.Repeat("s", 1<<16)},
		CPUs:   []agentv1.CPU{{Model: strings.Repeat("m", 500), Threads: 4}, {Threads: 4}},
		Disks:  []agentv1.Disk{{Bytes: 10}, {Bytes: 20, Removable: true}, {Bytes: 40, Virtual: true}, {Bytes: 80}},
		Memory: agentv1.Memory{Bytes: 1 << 30},
	}
	for i := range 1000 {
		inv.NICs = append(inv.NICs, agentv1.NIC{Name: strings.Repeat("n", 500), MAC: fmt.Sprintf("00:00:5e:01:%02x:%02x", i/256, i%256)})
	}
	m := &app.Machine{Name: "node1"}
	if err := commission.Apply(m, inv); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{m.Vendor, m.Model, m.Serial, m.NICs[0].Name} {
		if len(s) > 128 {
			t.Errorf("%d bytes of firmware's text are kept", len(s))
		}
	}
	if len(m.NICs) != metal.MaxNICs {
		t.Errorf("%d ports", len(m.NICs))
	}
	if want := (app.HardwareSummary{CPUs: 8, MemoryBytes: 1 << 30, Disks: 2, DiskBytes: 90}); m.Summary != want {
		t.Errorf("summary %+v", m.Summary)
	}
}
