package redfish

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// recordedTrees is the environment variable that names the folder of recorded vendor trees.
const recordedTrees = "BCD_REDFISH_DATA"

// recordedMachine is what must be read right from a recorded tree, besides what the tree itself says of its system.
type recordedMachine struct {
	tree, system string   // folder; path of the system
	named        bool     // the address must name the system: the BMC has several
	macs         int      // NICs found
	media        int      // virtual drives found
	actions      string   // power actions offered
	form         string   // of the boot override
	cd           string   // the word for a CD, "" when refused
	drive        string   // the virtual drive that an image goes into, and the form; "" when there is none
	once         bool     // keeps no boot device for good
	maker, model string   // when the system does not say
	noReset      []string // actions that must be refused while the tree shows its state
}

var recordedMachines = []recordedMachine{
	{tree: "cisco-c220m5sx-cimc-4.1.3d", system: "WZP22490ZCU", macs: 10, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "0 action"},
	{tree: "cisco-c225m6s-cimc", system: "WZP262207W0", macs: 6, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "0 action"},
	{tree: "cisco-c240m4sx-cimc", system: "FCH2017V1J7", macs: 10, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "0 action"},
	{tree: "dell-13g-idrac8-2.40.40.40", system: "System.Embedded.1", macs: 4, actions: "on off cycle", form: "changed", cd: "Cd", noReset: []string{"soft", "reset"}},
	{tree: "dell-r630-idrac8", system: "System.Embedded.1", actions: "on off reset soft cycle", form: "changed", cd: "Cd"},
	{tree: "dell-r650-idrac9-5.10.00.00", system: "System.Embedded.1", macs: 4, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "CD action"},
	{tree: "dell-r750-idrac9-6.00.30.00", system: "System.Embedded.1", macs: 5, media: 4, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "CD action"},
	{tree: "dmtf-public-rackmount1", system: "437XR1138R2", macs: 2, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd"},
	{tree: "fujitsu-tx1320m3-irmc-s4-9.08F", system: "0", actions: "on", form: "changed", cd: "Cd"},
	{tree: "gigabyte-h262z63-ami-12.84.13", system: "Self", macs: 2, media: 1, actions: "on off reset soft cycle", form: "full", cd: "Cd", drive: "CD1 action"},
	{tree: "hpe-dl325gen10plus-ilo5-2.14", system: "1", macs: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd"},
	{tree: "hpe-dl360gen10plus-ilo5-2.55", system: "1", macs: -1, media: -1, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "2 action"},
	{tree: "hpe-dl360gen12-ilo7-1.14", system: "1", macs: -1, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "2 action"},
	{tree: "hpe-dl380agen11-ilo6-1.66", system: "1", macs: 2, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "2 action"},
	{tree: "hpe-dl385gen10plusv2-ilo5-2.72", system: "1", macs: 7, media: 2, actions: "on off reset soft cycle", form: "changed", cd: "Cd", drive: "2 action"},
	{tree: "hpecray-ex425-multinode", system: "Node0", named: true, macs: 1, actions: "on off cycle", form: "changed", cd: "Cd", noReset: []string{"soft", "reset"}},
	{tree: "hpecray-ex425-multinode", system: "Node1", named: true, macs: 1, actions: "on off cycle", form: "changed", cd: "Cd"},
	{tree: "huawei-2288hv5-ibmc-3.12", system: "1", actions: "on off reset soft cycle", form: "changed", cd: "Cd"},
	{tree: "intel-s2600bpb-1.93", system: "QSBP74100021", actions: "on off reset soft cycle", form: "changed", cd: "Cd"},
	{tree: "lenovo-sr670v2-xcc-2.83", system: "1", macs: 4, media: 10, actions: "on off reset soft cycle", form: "changed", cd: "Cd", once: true, drive: "EXT1 patch"},
	{tree: "nvidia-bluefield3-bmc-24.10", system: "Bluefield", macs: 3, actions: "on off reset soft cycle", form: "settings-changed"},
	{tree: "nvidia-gb200-openbmc-24.12", system: "System_0", media: 2, actions: "on off reset soft cycle", form: "settings-changed", cd: "Cd", maker: "NVIDIA", model: "GB200 NVL", drive: "USB2 action"},
	{tree: "openbmc-stock-2.15-dev", system: "system", actions: "on off reset soft cycle", form: "changed", cd: "Cd"},
	{tree: "quanta-d42a2u-ami-3.14.19", system: "Self", macs: 1, actions: "on off reset soft cycle", form: "full", cd: "Cd"},
	{tree: "supermicro-sys821ge-x13-11.01.01", system: "1", macs: 11, media: 3, actions: "on off reset soft cycle", form: "full", cd: "UsbCd", drive: "VirtualMedia1 action"},
	{tree: "supermicro-x10-f618h6-3.80", system: "1", macs: 2, actions: "on off reset soft cycle", form: "full", cd: "UsbCd"},
}

// open replays the machine's tree.
func (m recordedMachine) open(t *testing.T) *rig {
	t.Helper()
	dir := os.Getenv(recordedTrees)
	if dir == "" {
		t.Skipf("%s is not set: recorded vendor trees are not replayed", recordedTrees)
	}
	bmc := bmctest.Replay(t, filepath.Join(dir, m.tree))
	r := newRig(t, bmc)
	if m.named {
		r.Config, _ = json.Marshal(map[string]string{"address": bmc.URL + m.path(), "tlsSpkiSha256": spki(bmc.Certificate())})
	}
	return r
}

func (m recordedMachine) path() string { return "/redfish/v1/Systems/" + m.system }

// said is what the tree says of its system.
func (m recordedMachine) said(r *rig, keys ...string) string {
	return (&document{body: r.bmc.Doc(m.path())}).text(keys...)
}

func TestRecordedProbe(t *testing.T) {
	for _, m := range recordedMachines {
		t.Run(m.tree+" "+m.system, func(t *testing.T) {
			r := m.open(t)
			out, err := r.call("management", "probe", "[]")
			if err != nil {
				t.Fatal(err)
			}
			var card driver.Card
			if err := json.Unmarshal(out, &card); err != nil {
				t.Fatal(err)
			}
			if !strings.EqualFold(card.Power.Power, m.said(r, "PowerState")) {
				t.Errorf("power is %q, the tree says %q", card.Power.Power, m.said(r, "PowerState"))
			}
			for _, c := range [][3]string{
				{"maker", card.Vendor, firstOf(m.maker, clean(m.said(r, "Manufacturer")))},
				{"model", card.Model, firstOf(m.model, clean(m.said(r, "Model")))},
				{"BIOS", card.BIOS, m.said(r, "BiosVersion")},
				{"UUID", card.ProductUUID, strings.ToLower(m.said(r, "UUID"))},
				{"power actions", strings.Join(card.PowerActions, " "), m.actions},
				{"form", card.Boot.Form, m.form},
				{"boot mode", card.Boot.Mode, m.said(r, "Boot", "BootSourceOverrideMode")},
			} {
				if c[1] != c[2] {
					t.Errorf("%s is %q, want %q", c[0], c[1], c[2])
				}
			}
			if serial := clean(m.said(r, "SerialNumber")); serial != "" && card.Serial != serial {
				t.Errorf("serial is %q, want %q", card.Serial, serial)
			}
			if m.macs >= 0 && len(card.MACs) != m.macs || m.macs < 0 && len(card.MACs) == 0 {
				t.Errorf("%d MACs %v, want %d", len(card.MACs), card.MACs, m.macs)
			}
			if m.media >= 0 && len(card.Media) != m.media {
				t.Errorf("%d virtual drives, want %d", len(card.Media), m.media)
			}
			for _, w := range card.Warnings {
				if !strings.Contains(w, "clock") {
					t.Errorf("warning: %s", w)
				}
			}
			if made, deleted, _ := r.bmc.Sessions(); made != deleted {
				t.Errorf("the probe left %d sessions", made-deleted)
			}
		})
	}
}

func TestRecordedInspect(t *testing.T) {
	for _, m := range recordedMachines {
		t.Run(m.tree+" "+m.system, func(t *testing.T) {
			r := m.open(t)
			out, err := r.call("inspect", "inspect", "[]")
			if err != nil {
				t.Fatal(err)
			}
			var inv driver.Inventory
			if err := json.Unmarshal(out, &inv); err != nil {
				t.Fatal(err)
			}
			if m.macs > 0 && len(inv.MACs) != m.macs {
				t.Errorf("MACs %v", inv.MACs)
			}
			if inv.BMC != nil && inv.BMC.MAC != "" && slices.Contains(inv.MACs, inv.BMC.MAC) {
				t.Errorf("the BMC's own MAC %s is given as the host's", inv.BMC.MAC)
			}
			if n := m.said(r, "ProcessorSummary", "Count"); n != "" && n != "0" && inv.CPUs == 0 {
				t.Errorf("no CPUs, the tree says %s", n)
			}
			if n := m.said(r, "MemorySummary", "TotalSystemMemoryGiB"); n != "" && n != "0" && inv.MemoryBytes == 0 {
				t.Errorf("no memory, the tree says %s GiB", n)
			}
		})
	}
}

func TestRecordedPower(t *testing.T) {
	for _, m := range recordedMachines {
		t.Run(m.tree+" "+m.system, func(t *testing.T) {
			r := m.open(t)
			for _, action := range m.noReset {
				if _, err := r.call("power", "setPower", `["`+action+`"]`); err == nil || err.Code != driver.CodeUnsupported {
					t.Errorf("%s gave %v, want it unsupported", action, err)
				}
			}
			if n := len(r.bmc.Requests("POST")); len(m.noReset) > 0 && n > 1 {
				t.Errorf("%d POSTs for refused actions; only the login may be one", n)
			}
			for _, action := range []string{"on", "off", "cycle", "off"} {
				_, err := r.call("power", "setPower", `["`+action+`"]`)
				offered := slices.Contains(strings.Fields(m.actions), action)
				if offered && err != nil {
					t.Errorf("%s: %v", action, err)
				}
				if !offered && (err == nil || err.Code != driver.CodeUnsupported) {
					t.Errorf("%s gave %v, want it unsupported", action, err)
				}
			}
		})
	}
}

func TestRecordedBoot(t *testing.T) {
	for _, m := range recordedMachines {
		t.Run(m.tree+" "+m.system, func(t *testing.T) {
			r := m.open(t)
			if m.said(r, "Boot", "BootSourceOverrideTarget") == "" {
				r.bmc.Doc(m.path())["Boot"] = map[string]any{} // takes what is written and shows it
			}
			out, err := r.call("management", "setBootDevice", `["pxe"]`)
			if err != nil {
				t.Fatal(err)
			}
			var shown driver.BootResult
			if err := json.Unmarshal(out, &shown); err != nil || shown.Target != "Pxe" || shown.Form != m.form {
				t.Errorf("the BMC shows %s, want Pxe by %s", out, m.form)
			}
			out, err = r.call("management", "setBootDevice", `["cdrom"]`)
			if m.cd == "" {
				if err == nil || err.Code != driver.CodeUnsupported {
					t.Errorf("a CD that is not offered gave %s, %v", out, err)
				}
			} else if !strings.Contains(string(out), `"target":"`+m.cd+`"`) {
				t.Errorf("CD: %s, %v, want %s", out, err, m.cd)
			}
			_, err = r.call("management", "setBootDevice", `["pxe",{"persistent":true}]`)
			if m.once != (err != nil) {
				t.Errorf("for good: %v, want it refused: %v", err, m.once)
			}
		})
	}
}

func TestRecordedAmbiguousSystem(t *testing.T) {
	m := recordedMachine{tree: "hpecray-ex425-multinode"}
	_, err := m.open(t).call("power", "getPower", "[]")
	if err == nil || err.Code != "ambiguous-system" || !strings.Contains(err.Message, "/redfish/v1/Systems/Node1") {
		t.Fatalf("two machines behind one BMC gave %v", err)
	}
}

// recordedBodies calls f with every recorded JSON object, trees and fragments.
func recordedBodies(t *testing.T, f func(name string, body []byte)) {
	t.Helper()
	dir := os.Getenv(recordedTrees)
	if dir == "" {
		t.Skipf("%s is not set: recorded bodies are not read", recordedTrees)
	}
	err := filepath.WalkDir(dir, func(file string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(file) != ".json" {
			return err
		}
		body, err := os.ReadFile(file)
		if err == nil {
			f(strings.TrimPrefix(file, dir), body)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// No recorded resource is lost to gofish's strictness, whatever members it has.
func TestRecordedResourcesDecode(t *testing.T) {
	read := 0
	recordedBodies(t, func(name string, body []byte) {
		d, err := parseDocument(&response{header: http.Header{}, body: body})
		if err != nil {
			return
		}
		var dropped []string
		switch kind, _, _ := strings.Cut(strings.TrimPrefix(d.text("@odata.type"), "#"), "."); kind {
		case "ComputerSystem":
			_, dropped = decode[schemas.ComputerSystem](d)
		case "Manager":
			_, dropped = decode[schemas.Manager](d)
		case "EthernetInterface":
			_, dropped = decode[schemas.EthernetInterface](d)
		default:
			return
		}
		read++
		if slices.Contains(dropped, "everything") {
			t.Errorf("%s is lost: %v", name, dropped)
		} else if len(dropped) > 0 {
			t.Logf("%s: repaired without %v", name, dropped)
		}
	})
	if read < 100 {
		t.Errorf("only %d resources were read", read)
	}
}

func TestRecordedFaults(t *testing.T) {
	seen := 0
	recordedBodies(t, func(name string, body []byte) {
		status := 400
		var wrapped struct {
			Status int    `json:"status"`
			Body   string `json:"body"`
		}
		if json.Unmarshal(body, &wrapped) == nil && wrapped.Status != 0 {
			status, body = wrapped.Status, []byte(wrapped.Body)
		}
		for part, want := range map[string]string{
			"error_single_ext_info": driver.CodeBMCError, "media-volumes/error.json": driver.CodeBMCError, "session_error": driver.CodeBMCError,
			"idrac8_license_error": driver.CodeBMCError, "error_pending_job": driver.CodeBMCError, "Chassis__custom": "password-change-required",
			"Systems__custom": "access-denied", "ibmc-tasks-and-errors/401": driver.CodeAuthFailed,
		} {
			if !strings.Contains(name, part) {
				continue
			}
			seen++
			if part == "ibmc-tasks-and-errors/401" {
				status = 401
			}
			e := parseFault(&response{status: status, body: body}).err("the request")
			if e.Code != want || e.Message == "" || strings.Contains(e.Message, "<html") {
				t.Errorf("%s: %s %q, want %s", name, e.Code, e.Message, want)
			}
		}
	})
	if seen < 8 {
		t.Errorf("only %d of 8 bodies were found", seen)
	}
}
