package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bootEntries are what the situations below are made of, by a word.
var bootEntries = map[string]BootEntry{
	"ui":     {ID: "Boot0000", Name: "UiApp", Kind: BootFirmware, Path: "Fv(1)/FvFile(1)"},
	"pxe4":   {ID: "Boot0001", Name: "PXEv4", Kind: BootNetwork, Path: "MAC(1)/IPv4(0.0.0.0)"},
	"pxe6":   {ID: "Boot0002", Name: "PXEv6", Kind: BootNetwork, Path: "MAC(1)/IPv6(::)"},
	"off":    {ID: "Boot0009", Name: "HTTP", Kind: BootNetwork, Path: "MAC(1)/Uri()", Inactive: true},
	"nvme":   {ID: "Boot0003", Name: "NVMe", Kind: BootDisk, Path: "NVMe(1)"},
	"shell":  {ID: "Boot0004", Name: "Shell", Kind: BootFirmware, Path: "Fv(1)/FvFile(2)"},
	"debian": {ID: "Boot0005", Name: "debian", Kind: BootSystem, Path: `HD(1,GPT,a,0x800,0x100)/\EFI\debian\shimx64.efi`},
	"ubuntu": {ID: "Boot0006", Name: "ubuntu", Kind: BootSystem, Path: `HD(1,GPT,b,0x800,0x100)/\EFI\ubuntu\shimx64.efi`},
	"again":  {ID: "Boot0016", Name: "ubuntu", Kind: BootSystem, Path: `HD(1,GPT,b,0x800,0x100)/\EFI\ubuntu\shimx64.efi`},
	"card":   {ID: "Boot0007", Name: "PXEv4 2", Kind: BootNetwork, Path: "MAC(2)/IPv4(0.0.0.0)"},
	"vendor": {ID: "Boot0008", Name: "SAN", Kind: BootOther, Path: "VenHw(1)"},
}

func bootViewOf(words string) BootView {
	v := BootView{Order: []string{}}
	for _, w := range strings.Fields(words) {
		e, ok := bootEntries[w]
		if !ok {
			v.Order = append(v.Order, w) // dangling
			continue
		}
		v.Entries, v.Order = append(v.Entries, e), append(v.Order, e.ID)
	}
	return v
}

func TestPlanBootOrder(t *testing.T) {
	for name, c := range map[string]struct {
		policy           BootPolicy
		own, found, want string
	}{
		"nothing known yet":                       {BootAsFound, "-", "debian pxe4 nvme", "debian pxe4 nvme"},
		"as it was":                               {BootAsFound, "pxe4 pxe6 nvme", "pxe4 pxe6 nvme", "pxe4 pxe6 nvme"},
		"a system put itself first":               {BootAsFound, "pxe4 pxe6 nvme", "debian pxe4 pxe6 nvme", "pxe4 pxe6 nvme debian"},
		"two systems did":                         {BootAsFound, "pxe4", "ubuntu debian pxe4", "pxe4 ubuntu debian"},
		"it must not end behind the shell":        {BootAsFound, "ui pxe4 shell", "debian ui pxe4 shell", "ui pxe4 debian shell"},
		"all that is left is firmware":            {BootAsFound, "ui shell", "debian ui shell", "debian ui shell"},
		"a network that is turned off counts too": {BootAsFound, "off", "debian off", "off debian"},
		"behind what the maker hides":             {BootAsFound, "pxe4 vendor shell", "debian pxe4 vendor shell", "pxe4 vendor debian shell"},
		"a system that was found first stays":     {BootAsFound, "ubuntu pxe4 nvme", "ubuntu pxe4 nvme", "ubuntu pxe4 nvme"},
		"a system that was found last moved":      {BootAsFound, "pxe4 nvme ubuntu", "ubuntu pxe4 nvme", "pxe4 nvme ubuntu"},
		"a system that was in the middle moved":   {BootAsFound, "pxe4 ubuntu nvme", "ubuntu pxe4 nvme", "pxe4 ubuntu nvme"},
		"it came back under another number":       {BootAsFound, "pxe4 nvme ubuntu", "again pxe4 nvme", "pxe4 nvme again"},
		"two systems of ours changed places":      {BootAsFound, "debian ubuntu pxe4", "ubuntu debian pxe4", "debian ubuntu pxe4"},
		"what a person changed stays":             {BootAsFound, "pxe4 pxe6 nvme", "nvme pxe6 pxe4", "nvme pxe6 pxe4"},
		"a new card stays where firmware put it":  {BootAsFound, "pxe4 nvme", "card pxe4 nvme", "card pxe4 nvme"},
		"a new card came between":                 {BootAsFound, "ubuntu nvme", "ubuntu card nvme", "ubuntu card nvme"},
		"a new card, a system already behind":     {BootAsFound, "pxe4 nvme", "pxe4 nvme debian card", "pxe4 nvme debian card"},
		"a card went, a system came":              {BootAsFound, "pxe4 card nvme", "debian card nvme", "card nvme debian"},
		"an id without an entry stays":            {BootAsFound, "pxe4 nvme", "Boot00FF debian pxe4 nvme", "Boot00FF pxe4 nvme debian"},
		"the order is empty":                      {BootAsFound, "pxe4", "", ""},
		"network first, nothing known":            {BootNetworkFirst, "-", "ui nvme pxe4 pxe6 shell", "pxe4 pxe6 ui nvme shell"},
		"network first, a system in front":        {BootNetworkFirst, "nvme pxe4", "debian nvme pxe4", "pxe4 nvme debian"},
		"network first leaves what is turned off": {BootNetworkFirst, "-", "nvme off pxe4", "pxe4 nvme off"},
		"network first moves nothing else":        {BootNetworkFirst, "ubuntu pxe4", "ubuntu 0 pxe4", "pxe4 ubuntu 0"},
		"network first without a network":         {BootNetworkFirst, "nvme", "debian nvme", "nvme debian"},
	} {
		t.Run(name, func(t *testing.T) {
			var own []BootEntry
			if c.own != "-" {
				own = append([]BootEntry{}, bootViewOf(c.own).Entries...)
			}
			found := bootViewOf(c.found)
			got := PlanBootOrder(c.policy, own, found)
			if diff := cmp.Diff(bootViewOf(c.want).Order, got); diff != "" {
				t.Error(diff)
			}
			// What is planned is stable, and nothing is lost or made up.
			now := found
			now.Order = got
			if again := PlanBootOrder(c.policy, own, now); !slices.Equal(again, got) {
				t.Errorf("planned again: %v, after %v", again, got)
			}
			if a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(found.Order)); !slices.Equal(a, b) {
				t.Errorf("planned %v of %v", a, b)
			}
		})
	}
}

func TestBootChanges(t *testing.T) {
	for name, c := range map[string]struct {
		was, is string
		what    []string
		system  bool
	}{
		"none":                   {"pxe4 nvme", "pxe4 nvme", nil, false},
		"a system added itself":  {"pxe4 nvme", "debian pxe4 nvme", []string{"debian was added, at 1"}, true},
		"a system moved first":   {"pxe4 nvme debian", "debian pxe4 nvme", []string{"debian was moved from 3 to 1"}, true},
		"a person moved a disk":  {"pxe4 pxe6 nvme", "nvme pxe4 pxe6", []string{"NVMe was moved from 3 to 1"}, false},
		"ours was put back":      {"debian pxe4 pxe6 nvme", "pxe4 pxe6 nvme debian", []string{"debian was moved from 1 to 4"}, false},
		"before two systems":     {"debian ubuntu pxe4", "pxe4 debian ubuntu", []string{"PXEv4 was moved from 3 to 1"}, false},
		"two changed places":     {"pxe4 pxe6", "pxe6 pxe4", []string{"PXEv6 was moved from 2 to 1"}, false},
		"a card went":            {"pxe4 card nvme", "pxe4 nvme", []string{"PXEv4 2 is gone from the order"}, false},
		"one is there twice":     {"pxe4 pxe4 nvme", "pxe4 pxe4 nvme", nil, false},
		"another number is same": {"pxe4 ubuntu", "pxe4 again", nil, false},
	} {
		what, system := BootChanges(bootViewOf(c.was), bootViewOf(c.is))
		if diff := cmp.Diff(c.what, what); diff != "" || system != c.system {
			t.Errorf("%s: by a system %v; %s", name, system, diff)
		}
	}
}

func TestBootPolicyAndWriter(t *testing.T) {
	for _, c := range []struct {
		machine, profile BootPolicy
		once             bool
		want             BootPolicy
	}{
		{"", "", true, BootAsFound}, {"", "", false, BootNetworkFirst}, {BootAsFound, BootNetworkFirst, false, BootAsFound}, {"", BootNetworkFirst, true, BootNetworkFirst},
	} {
		if got, why := BootPolicyFor(c.machine, c.profile, c.once); got != c.want || why == "" {
			t.Errorf("%+v: %q because %q", c, got, why)
		}
	}
	for name, c := range map[string]struct {
		f    BootWriterFacts
		want BootWriter
	}{
		"UEFI":                               {BootWriterFacts{Firmware: FirmwareUEFI, BMC: true}, BootByAgent},
		"UEFI, never read":                   {BootWriterFacts{}, BootByAgent},
		"BIOS":                               {BootWriterFacts{Firmware: FirmwareBIOS, BMC: true}, BootByBMC},
		"BIOS, and a BMC without an order":   {BootWriterFacts{Firmware: FirmwareBIOS}, BootByNone},
		"variables that are locked":          {BootWriterFacts{Firmware: FirmwareUEFI, Recorded: BootByAgent, BMC: true, Failed: ReasonNVRAMReadOnly}, BootByBMC},
		"locked, and no way through the BMC": {BootWriterFacts{Firmware: FirmwareUEFI, Recorded: BootByAgent, Failed: ReasonNVRAMReadOnly}, BootByAgent},
		"variables that are full stay the agent's": {BootWriterFacts{Firmware: FirmwareUEFI, Recorded: BootByAgent, Reason: "r", BMC: true, Failed: ReasonNVRAMFull}, BootByAgent},
		"once the BMC's, always":                   {BootWriterFacts{Firmware: FirmwareUEFI, Recorded: BootByBMC, Reason: "r", BMC: true}, BootByBMC},
		"the BMC's driver went":                    {BootWriterFacts{Firmware: FirmwareUEFI, Recorded: BootByBMC, Reason: "r"}, BootByAgent},
	} {
		if got, why := BootWriterFor(c.f); got != c.want || why == "" {
			t.Errorf("%s: %q because %q", name, got, why)
		}
	}
}

// Names and paths as BMCs of several makers give them.
func TestBootEntryOfPath(t *testing.T) {
	for _, c := range []struct{ name, path, kind, protocol, mac, partition string }{
		{"debian", `HD(1,GPT,02BE3442-A00F-477A-B0F0-C387A1B858B7,0x800,0x32000)/\EFI\debian\shimx64.efi`, BootSystem, "", "", "gpt:02be3442-a00f-477a-b0f0-c387a1b858b7"},
		{"old", `HD(2,MBR,0x1234ABCD,0x800,0x32000)/\EFI\a.efi`, BootSystem, "", "", "mbr:1234abcd-2"},
		{"SSD: Fixed Disk", `PciRoot(0xB)/Pci(0x3,0x0)/NVMe(0x1,01-00)/HD(1,GPT,94E38211-E018-4486-B793-8577C6B7D036,0x800,0x100000)`, BootDisk, "", "", "gpt:94e38211-e018-4486-b793-8577c6b7d036"},
		{"Slot 1 (HTTP(S) IPv4)", `Acpi(0x1,0x2)/Pci(0x0,0x0)/MAC(00005E005301,0x1)/IPv4(0.0.0.0)/Uri()`, BootNetwork, "HTTP IPv4", "00:00:5e:00:53:01", ""},
		{"Port 1", `PciRoot(0x0)/MAC(00005E005301,0x1)/IPv6(0000:0000:0000:0000:0000:0000:0000:0000)`, BootNetwork, "PXE IPv6", "00:00:5e:00:53:01", ""},
		{"PXE Device 1: Embedded NIC 1 Port 1", `VenHw(3A191845-5F86-4E78-8FCE-C4CFF59F9DAA)`, BootNetwork, "PXE", "", ""},
		{"Network", `VenHw_B2AD3248_4F72_4950_A966_CFE5062DB83A_05000000`, BootNetwork, "PXE", "", ""},
		{"HardDisk", `VenHw_B2AD3248_4F72_4950_A966_CFE5062DB83A_01000000`, BootDisk, "", "", ""},
		{"UEFI: Built-in EFI Shell", `VenMedia(5023B95C-DB26-429B-A648-BD47664C8012)`, BootFirmware, "", "", ""},
		{"Generic USB Boot", `UsbClass(0xFFFF,0xFFFF,0xFF,0xFF,0xFF)`, BootMedium, "", "", ""},
		{"(B26/D0/F0) UEFI PXE IPv4 Adapter", "", BootNetwork, "PXE IPv4", "", ""},
		{"NET-NIC_P0-IPV4", `Pci(0x0,0x0)/MAC(00005E005301,0x1)/IPv4(0.0.0.0,0x0,DHCP,0.0.0.0,0.0.0.0,0.0.0.0)`, BootNetwork, "PXE IPv4", "00:00:5e:00:53:01", ""},
		{"something else", "", BootOther, "", "", ""},
	} {
		e := BootEntryOfPath("Boot0001", c.name, c.path)
		if e.Kind != c.kind || e.Protocol != c.protocol || e.MAC != c.mac || e.Partition != c.partition {
			t.Errorf("%s %s: %+v", c.name, c.path, e)
		}
	}
}

func FuzzPlanBootOrder(f *testing.F) {
	f.Add("pxe4 nvme", "debian pxe4 nvme", true)
	f.Add("ubuntu pxe4 debian", "debian ubuntu nvme pxe4 shell", false)
	f.Fuzz(func(t *testing.T, own, found string, network bool) {
		policy := BootAsFound
		if network {
			policy = BootNetworkFirst
		}
		v := bootViewOf(found)
		got := PlanBootOrder(policy, bootViewOf(own).Entries, v)
		if a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(v.Order)); !slices.Equal(a, b) {
			t.Fatalf("planned %v of %v", got, v.Order)
		}
		v.Order = got
		if again := PlanBootOrder(policy, bootViewOf(own).Entries, v); !slices.Equal(again, got) {
			t.Fatalf("%v, and again %v", got, again)
		}
	})
}
