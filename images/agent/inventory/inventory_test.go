package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/ipmi"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func nic(files map[string]string, name, place, mac, driver string, more map[string]string) {
	at := "devices/" + place + "/net/" + name + "/"
	files["class/net/"+name] = "->../../" + strings.TrimSuffix(at, "/")
	files[at+"type"], files[at+"address"] = "1\n", mac+"\n"
	files[at+"device"] = "->../../../" + place[strings.LastIndex(place, "/")+1:]
	files["devices/"+place+"/driver"] = "->" + strings.Repeat("../", strings.Count(place, "/")+2) + "bus/drivers/" + driver
	files["bus/drivers/"+driver+"/.keep"] = ""
	for k, v := range more {
		files[at+k] = v
	}
}

func TestNICs(t *testing.T) {
	files := map[string]string{
		"class/net/lo/type": "772\n", "class/net/br0/type": "1\n", "class/net/br0/address": "00:00:5e:00:53:09\n", "block/.keep": "",
	}
	nic(files, "eth0", "pci0000:00/0000:02:00.0", "00:00:5E:00:53:01", "ixgbe", map[string]string{"carrier": "1\n", "speed": "10000\n"})
	nic(files, "eth1", "pci0000:00/0000:02:00.1", "00:00:5e:00:53:02", "ixgbe", map[string]string{"carrier": "0\n", "speed": "-1\n"})
	nic(files, "usb0", "pci0000:00/0000:00:14.0/usb1/1-3/1-3:2.0", "00:00:5e:00:53:03", "cdc_ether", map[string]string{"carrier": "1\n"})
	sys := tree(t, t.TempDir(), files)
	c := New(Config{Sys: sys, BootMAC: "00:00:5e:00:53:01", Log: quiet, LLDP: func() map[string]agentv1.LLDP {
		return map[string]agentv1.LLDP{"eth0": {Chassis: "c", Port: "p"}}
	}})
	got, err := c.nics()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]agentv1.NIC{}
	for _, n := range got {
		by[n.Name] = n
	}
	if n := by["eth0"]; !n.Boot || !n.Link || n.Speed != 10000 || n.Driver != "ixgbe" || n.PCI != "0000:02:00.0" || n.MAC != "00:00:5e:00:53:01" || n.LLDP.Port != "p" {
		t.Errorf("eth0 %+v", n)
	}
	if n := by["eth1"]; n.Link || n.Speed != 0 || n.Boot {
		t.Errorf("eth1 %+v", n)
	}
	if !by["usb0"].BMCUSB || by["eth0"].BMCUSB || !by["br0"].Virtual || len(got) != 4 {
		t.Errorf("%+v", by)
	}
	if m := strings.Join(MACs(sys), " "); m != "00:00:5e:00:53:01 00:00:5e:00:53:02" {
		t.Errorf("identity by %q", m)
	}
}

func TestFirmware(t *testing.T) {
	bios := tree(t, t.TempDir(), map[string]string{"x": ""})
	uefi := tree(t, t.TempDir(), map[string]string{"firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\x00\x00\x00\x01", "class/tpm/tpm0/tpm_version_major": "2\n"})
	if Firmware(bios) != "bios" || Firmware(uefi) != "uefi" || secureBoot(bios) || !secureBoot(uefi) || tpm(uefi) != "2.0" || tpm(bios) != "" {
		t.Error("firmware mode")
	}
}

func TestCPUs(t *testing.T) {
	var b strings.Builder
	for i := range 8 {
		fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: GenuineIntel\nmodel name\t: Example CPU\nphysical id\t: %d\ncore id\t\t: %d\nflags\t\t: fpu vmx\n\n", i, i/4, i%2)
	}
	got, err := cpus(tree(t, t.TempDir(), map[string]string{"cpuinfo": b.String()}))
	if err != nil || len(got) != 2 || got[1].Socket != 1 || got[0].Cores != 2 || got[0].Threads != 4 || len(got[0].Flags) != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := cpus(t.TempDir()); err == nil {
		t.Error("no processor is an error")
	}
}

func TestInventoryStaysSmall(t *testing.T) {
	var inv agentv1.Inventory
	for range maxPCI {
		inv.PCI = append(inv.PCI, agentv1.PCI{Address: strings.Repeat("a", 200), Driver: strings.Repeat("b", 200)})
	}
	for range maxDisks {
		inv.Disks = append(inv.Disks, agentv1.Disk{Name: "sda", Serial: strings.Repeat("s", 256), Model: strings.Repeat("m", 256), ByID: []string{strings.Repeat("i", 200)}})
	}
	got := fit(inv)
	b, err := json.Marshal(got)
	if err != nil || len(b) > maxJSON || len(got.Partial) == 0 || len(got.Disks) == 0 {
		t.Errorf("%d bytes, %q, %v", len(b), got.Partial, err)
	}
}

func TestEveryPartMayFail(t *testing.T) {
	c := New(Config{
		Sys: t.TempDir(), Proc: t.TempDir(), Log: quiet,
		BMC:   func(context.Context) (*agentv1.BMCInfo, error) { return nil, errors.New("BMC is stuck") },
		Wants: func() ([]string, error) { return []string{"driver x wants y"}, errors.New("not settled") },
	})
	inv := c.Take(t.Context())
	for _, part := range []string{"smbios", "cpu", "memory", "disks", "network", "bmc", "firmware files"} {
		if !strings.Contains(strings.Join(inv.Partial, "\n"), part+": ") {
			t.Errorf("%s is not named in %q", part, inv.Partial)
		}
	}
	if len(inv.Wants) != 1 {
		t.Errorf("wants %q", inv.Wants)
	}
}

// fakeBMC answers as a BMC whose LAN is channel 8.
type fakeBMC struct{ err error }

func (f fakeBMC) GetDeviceID() (*ipmi.DevID, error) {
	return &ipmi.DevID{FwRev1: 0x81, FwRev2: 0x42}, f.err
}

func (f fakeBMC) GetLanConfig(channel, param byte) ([]byte, error) {
	if channel != 8 {
		return nil, errors.New("no LAN")
	}
	if param == lanMAC {
		return []byte{0, 0x11, 0, 0, 0x5e, 0, 0x53, 0x77}, nil
	}
	return []byte{0, 0x11, 192, 0, 2, 7}, nil
}

func (f fakeBMC) SendRecv(ipmi.NetFn, ipmi.Command, []byte) ([]byte, error) {
	return append([]byte{0}, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00), nil
}

func TestBMC(t *testing.T) {
	got, err := askBMC(fakeBMC{})
	want := agentv1.BMCInfo{MAC: "00:00:5e:00:53:77", Address: "192.0.2.7", Firmware: "1.42", GUID: "00112233-4455-6677-8899-aabbccddeeff"}
	if err != nil || *got != want {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := askBMC(fakeBMC{err: errors.New("timeout")}); err == nil {
		t.Error("a BMC that does not answer is an error")
	}
	if info, err := BMC(t.TempDir() + "/ipmi0")(t.Context()); info != nil || err != nil {
		t.Error("no device is no BMC and no error")
	}
}

func lldp(tlvs ...string) []byte {
	frame := append(make([]byte, 12), 0x88, 0xcc)
	for _, v := range tlvs {
		frame = append(frame, v...)
	}
	return frame
}

func tlv(kind byte, v string) string { return string([]byte{kind << 1, byte(len(v))}) + v }

func TestLLDP(t *testing.T) {
	good := lldp(tlv(1, "\x04\x00\x00\x5e\x00\x53\x10"), tlv(2, "\x05Eth1/7"), tlv(3, "\x00\x78"), tlv(5, "leaf-\x1b1"), tlv(0, ""))
	tagged := append(append(append([]byte{}, good[:12]...), 0x81, 0, 0, 5), good[12:]...)
	for _, f := range [][]byte{good, tagged} {
		got, err := parseLLDP(f)
		if err != nil || got != (agentv1.LLDP{Chassis: "00:00:5e:00:53:10", Port: "Eth1/7", System: "leaf-1"}) {
			t.Errorf("%+v %v", got, err)
		}
	}
	for _, f := range [][]byte{nil, good[:13], good[:20], lldp(), lldp(tlv(1, "\x04"), tlv(2, "")), {0: 1, 13: 2}} {
		if _, err := parseLLDP(f); err == nil {
			t.Errorf("%x was accepted", f)
		}
	}
}

func FuzzLLDP(f *testing.F) {
	f.Add(lldp(tlv(1, "\x05\x01\xc0\x00\x02\x01"), tlv(2, "\x03\x00\x00\x5e\x00\x53\x10"), tlv(0, "")))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseLLDP(b)
		if err == nil && (got.Chassis == "" || len(got.Port) > maxText) {
			t.Errorf("%+v", got)
		}
	})
}
