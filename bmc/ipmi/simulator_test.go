package ipmi

import (
	"encoding/json"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// newSimulated is a driver for a fresh ipmi_sim.
func newSimulated(t *testing.T, cfg bmctest.SimulatorConfig) (*rig, *bmctest.Simulator) {
	t.Helper()
	needTool(t)
	sim := bmctest.NewSimulator(t, cfg)
	r := newRig(t, unhurried, sim.Address(), `{"cipherSuite":3}`)
	r.Secrets["password"] = bmctest.SimulatorPassword
	return r, sim
}

func TestSimulatorConformance(t *testing.T) {
	bmctest.Conformance(t, func(t *testing.T) bmctest.BMC {
		r, _ := newSimulated(t, bmctest.SimulatorConfig{})
		return r.BMC
	})
}

func TestSimulatorKeepsTheDeviceOnly(t *testing.T) {
	r, sim := newSimulated(t, bmctest.SimulatorConfig{})
	for device, want := range map[string][]string{"pxe": {"pxe"}, "disk": {"default", "disk"}, "cdrom": {"cdrom"}} {
		var result driver.BootResult
		if err := json.Unmarshal(r.must(t, "management", "setBootDevice", `["`+device+`",{"uefi":true,"persistent":true}]`), &result); err != nil {
			t.Fatal(err)
		}
		if got := sim.Machine().BootDevice(); !slices.Contains(want, got) {
			t.Errorf("%s: the machine got %q", device, got)
		}
		if len(result.Notes) == 0 || !strings.Contains(result.Notes[0], "simulator") {
			t.Errorf("%s: nothing was said about what the simulator loses: %+v", device, result)
		}
	}
}

func TestSimulatorInspection(t *testing.T) {
	r, _ := newSimulated(t, bmctest.SimulatorConfig{})
	var inv driver.Inventory
	if err := json.Unmarshal(r.must(t, "inspect", "inspect", `[]`), &inv); err != nil {
		t.Fatal(err)
	}
	if inv.Manufacturer != "ACME" || inv.Model != "Server 9" || inv.SerialNumber != "SN0001" || inv.Board == nil || inv.Board.Serial != "BDSN0001" {
		t.Errorf("the machine is %+v", inv)
	}
	if inv.BMC == nil || inv.BMC.MAC != "00:00:5e:00:53:bc" || inv.BMC.IPAddress != "192.0.2.50" || inv.BMC.Firmware != "2.15" {
		t.Errorf("the BMC is %+v", inv.BMC)
	}
	if inv.Sensors == nil || inv.Sensors.Count != 2 || inv.Sensors.OK != 2 || len(inv.Sensors.Problems) != 0 {
		t.Errorf("the sensors are %+v", inv.Sensors)
	}
}

// An empty repository stays as it is: the simulator, as BMCs do, would be made to erase it by a listing.
func TestSimulatorEmptyRepositoryIsLeftAlone(t *testing.T) {
	r, _ := newSimulated(t, bmctest.SimulatorConfig{NoSensors: true})
	raw := string(r.must(t, "inspect", "inspect", `[]`))
	if strings.Contains(raw, `"sensors"`) {
		t.Errorf("inspect gave sensors of an empty repository: %s", raw)
	}
}

func TestSimulatorRefusesSuite17(t *testing.T) {
	r, sim := newSimulated(t, bmctest.SimulatorConfig{})
	r.Config, _ = json.Marshal(map[string]string{"address": sim.Address()})
	e := r.refused(t, "power", "getPower", `[]`, CodeCipherSuite)
	if !strings.Contains(e.Message, "cipherSuite to 3") {
		t.Errorf("the way out is missing: %s", e.Message)
	}
}

func TestSimulatorConsole(t *testing.T) {
	r, sim := newSimulated(t, bmctest.SimulatorConfig{})
	machine := make(chan net.Conn, 1)
	go func() {
		if c, err := sim.Serial().Accept(); err == nil {
			machine <- c
		}
	}()
	console := r.open(t)
	line := <-machine
	defer line.Close()
	if _, err := io.WriteString(line, "login: "); err != nil {
		t.Fatal(err)
	}
	expect(t, console, "login: ")
	if _, err := io.WriteString(console, "root\r"); err != nil {
		t.Fatal(err)
	}
	expect(t, line, "root\r")
	if err := console.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.open(t).Close(); err != nil { // nothing is left of the first session
		t.Fatal(err)
	}
}
