package redfish

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

const optionsPath = bmctest.SystemPath + "/BootOptions"

// ordered gives a BMC a boot order with its options.
func ordered(t *testing.T) *bmctest.Redfish {
	t.Helper()
	b := bmctest.NewRedfish(t)
	members := []any{}
	for id, o := range map[string][2]string{
		"Boot0001": {"Slot 1 (PXE IPv4)", "PciRoot(0x0)/Pci(0x1,0x0)/MAC(00005E005301,0x1)/IPv4(0.0.0.0)"},
		"Boot0002": {"NVMe Drive 1", "PciRoot(0x0)/Pci(0x2,0x0)/NVMe(0x1,00-00)"},
		"Boot0003": {"debian", `HD(1,GPT,00112233-4455-6677-8899-AABBCCDDEEFF,0x800,0x100)/\EFI\debian\shimx64.efi`},
	} {
		p := optionsPath + "/" + id
		d := b.Doc(p)
		d["BootOptionReference"], d["DisplayName"], d["Name"], d["UefiDevicePath"] = id, o[0], "Boot Option", o[1]
		members = append(members, map[string]any{"@odata.id": p})
	}
	b.Doc(optionsPath)["Members"] = members
	b.Boot()["BootOrder"] = []any{"Boot0003", "Boot0001", "Boot0002"}
	b.Boot()["BootOptions"] = map[string]any{"@odata.id": optionsPath}
	return b
}

func orderOf(t *testing.T, raw json.RawMessage, err *driver.Error) driver.BootOrder {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var o driver.BootOrder
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReadsTheBootOrder(t *testing.T) {
	r := newRig(t, ordered(t))
	raw, err := r.call("management", "getBootOrder", "[]")
	o := orderOf(t, raw, err)
	kinds := map[string]string{}
	for _, x := range o.Options {
		kinds[x.ID] = x.Kind + " " + x.Protocol + x.MAC + x.Partition
	}
	if !slices.Equal(o.Order, []string{"Boot0003", "Boot0001", "Boot0002"}) || !o.Writable || o.Pending || len(o.Options) != 3 || kinds["Boot0001"] != "network PXE IPv400:00:5e:00:53:01" ||
		kinds["Boot0002"] != "disk " || kinds["Boot0003"] != "system gpt:00112233-4455-6677-8899-aabbccddeeff" {
		t.Errorf("%+v", o)
	}
	if n := len(r.bmc.Requests(http.MethodPatch)); n != 0 {
		t.Errorf("%d writes", n)
	}
}

// An option that is gone leaves its number; one that cannot be read at all leaves the order.
func TestABootOrderStandsWithoutItsOptions(t *testing.T) {
	b := ordered(t)
	b.Boot()["BootOptions"] = map[string]any{"@odata.id": "/redfish/v1/nowhere"}
	r := newRig(t, b)
	raw, err := r.call("management", "getBootOrder", "[]")
	if o := orderOf(t, raw, err); len(o.Order) != 3 || len(o.Options) != 0 {
		t.Errorf("%+v", o)
	}
	r = newRig(t, bmctest.NewRedfish(t))
	if _, err := r.call("management", "getBootOrder", "[]"); err == nil || err.Code != driver.CodeUnsupported {
		t.Errorf("a BMC without a boot order: %v", err)
	}
}

func TestWritesTheWholeBootOrder(t *testing.T) {
	r := newRig(t, ordered(t))
	raw, err := r.call("management", "setBootOrder", `[["Boot0001","Boot0002","Boot0003"]]`)
	if o := orderOf(t, raw, err); !slices.Equal(o.Order, []string{"Boot0001", "Boot0002", "Boot0003"}) || o.Pending {
		t.Errorf("%+v", o)
	}
	again, err := r.call("management", "setBootOrder", `[["Boot0001","Boot0002","Boot0003"]]`)
	orderOf(t, again, err)
	if n := len(r.bmc.Requests(http.MethodPatch)); n != 1 {
		t.Errorf("%d writes of one order", n)
	}
	for _, args := range []string{`[["Boot0001"]]`, `[["Boot0001","Boot0002","Boot0002"]]`, `[["Boot0001","Boot0002","Boot0009"]]`, `[[]]`} {
		if _, err := r.call("management", "setBootOrder", args); err == nil || err.Code != driver.CodeInvalidArgs {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Where the settings object has an order of its own it is written there, and holds from the next start on.
func TestABootOrderThatPends(t *testing.T) {
	b := ordered(t)
	settings := bmctest.SystemPath + "/Pending"
	b.Doc(bmctest.SystemPath)["@Redfish.Settings"] = map[string]any{"SettingsObject": map[string]any{"@odata.id": settings}}
	b.Doc(settings)["Boot"] = map[string]any{"BootOrder": []any{"Boot0003", "Boot0001", "Boot0002"}}
	r := newRig(t, b)
	raw, err := r.call("management", "setBootOrder", `[["Boot0001","Boot0002","Boot0003"]]`)
	if o := orderOf(t, raw, err); !o.Pending || o.Order[0] != "Boot0001" {
		t.Errorf("%+v", o)
	}
	if p := r.bmc.Requests(http.MethodPatch); len(p) != 1 || p[0].Path != settings {
		t.Errorf("%+v", p)
	}
	raw, err = r.call("management", "getBootOrder", `[]`)
	if o := orderOf(t, raw, err); !o.Pending || o.Order[0] != "Boot0001" || len(o.Notes) != 1 {
		t.Errorf("%+v", o)
	}
}

func TestABootOrderThatIsNotKept(t *testing.T) {
	b := ordered(t)
	b.Intercept = func(w http.ResponseWriter, r *http.Request, _ map[string]any) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		w.WriteHeader(http.StatusOK)
		return true
	}
	r := newRig(t, b)
	if _, err := r.call("management", "setBootOrder", `[["Boot0001","Boot0002","Boot0003"]]`); err == nil || err.Code != driver.CodeNotApplied {
		t.Errorf("taken and dropped: %v", err)
	}
	b.Do(func() {
		b.Intercept = func(w http.ResponseWriter, r *http.Request, _ map[string]any) bool {
			if r.Method == http.MethodPatch {
				bmctest.Fail(w, http.StatusBadRequest, "Base.1.8.PropertyNotWritable", "The property BootOrder is read only.")
			}
			return r.Method == http.MethodPatch
		}
	})
	if _, err := r.call("management", "setBootOrder", `[["Boot0001","Boot0002","Boot0003"]]`); err == nil || err.Message == "" {
		t.Errorf("refused: %v", err)
	}
}

// Boot orders as BMCs of several makers show them: what the first entries are, and that the reversed list is written whole.
func TestRecordedBootOrders(t *testing.T) {
	dir := os.Getenv(recordedTrees)
	if dir == "" {
		t.Skipf("left out: %s names no folder of recorded BMCs", recordedTrees)
	}
	for _, c := range []struct {
		tree, system string
		kinds        string // of the order, in it; "?": the recording lacks the option
	}{
		{"dell-r650-idrac9-5.10.00.00", "System.Embedded.1", "system network"},
		{"dell-r750-idrac9-6.00.30.00", "System.Embedded.1", "network system system system disk"},
		{"gigabyte-h262z63-ami-12.84.13", "Self", "network network network network network network firmware"},
		{"hpe-dl360gen12-ilo7-1.14", "1", "medium network network network network"},
		{"hpe-dl380agen11-ilo6-1.66", "1", "system system medium"},
		{"hpecray-ex425-multinode", "Node0", "network network"},
		{"lenovo-sr670v2-xcc-2.83", "1", "network disk"},
		{"supermicro-sys821ge-x13-11.01.01", "1", "network network"},
	} {
		t.Run(c.tree, func(t *testing.T) {
			b := bmctest.Replay(t, filepath.Join(dir, c.tree))
			r := newRig(t, b)
			r.Config, _ = json.Marshal(map[string]string{"address": b.URL + "/redfish/v1/Systems/" + c.system, "tlsSpkiSha256": spki(b.Certificate())})
			raw, err := r.call("management", "getBootOrder", "[]")
			o := orderOf(t, raw, err)
			var kinds []string
			for _, id := range o.Order {
				i := slices.IndexFunc(o.Options, func(x driver.BootOption) bool { return x.ID == id })
				if i < 0 {
					kinds = append(kinds, "?")
					continue
				}
				kinds = append(kinds, o.Options[i].Kind)
			}
			if got := strings.Join(kinds, " "); !strings.HasPrefix(got, c.kinds) {
				t.Errorf("%s", got)
				for _, x := range o.Options {
					t.Logf("%+v", x)
				}
			}
			slices.Reverse(o.Order)
			args, _ := json.Marshal([][]string{o.Order})
			raw, err = r.call("management", "setBootOrder", string(args))
			if now := orderOf(t, raw, err); !slices.Equal(now.Order, o.Order) {
				t.Errorf("wrote %v, read %v", o.Order, now.Order)
			}
		})
	}
}
