package redfish

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// must fails the test on an error.
func (r *rig) must(t *testing.T, kind, op, args string) json.RawMessage {
	t.Helper()
	out, err := r.call(kind, op, args)
	if err != nil {
		t.Fatalf("%s.%s%s: %v", kind, op, args, err)
	}
	return out
}

// wants checks the code of an error.
func wants(t *testing.T, err *driver.Error, code string) {
	t.Helper()
	if err == nil || err.Code != code {
		t.Fatalf("got %v, want the code %s", err, code)
	}
}

// Case 33: a member of the wrong JSON type costs that member, never the machine.
func TestWrongTypesKeepTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(sys map[string]any)
		serial   string
		warnings int
	}{
		"number for text":    {func(s map[string]any) { s["SerialNumber"] = 12345 }, "12345", 0},
		"text for number":    {func(s map[string]any) { s["MemorySummary"] = map[string]any{"TotalSystemMemoryGiB": "96"} }, "S1", 0},
		"text for count":     {func(s map[string]any) { s["ProcessorSummary"] = map[string]any{"Count": "2"} }, "S1", 0},
		"number for tag":     {func(s map[string]any) { s["@odata.etag"] = 87422082150 }, "S1", 0},
		"null boot":          {func(s map[string]any) { s["Boot"] = nil }, "S1", 0},
		"words for a number": {func(s map[string]any) { s["MemorySummary"] = map[string]any{"TotalSystemMemoryGiB": "N/A"} }, "S1", 1},
		"text for an object": {func(s map[string]any) { s["ProcessorSummary"] = "two" }, "S1", 1},
		"list for an object": {func(s map[string]any) { s["Status"] = []any{map[string]any{"Health": "OK"}} }, "S1", 1},
		"object for a list":  {func(s map[string]any) { s["HostingRoles"] = map[string]any{"a": 1} }, "S1", 1},
		"everything at once": {func(s map[string]any) {
			s["SerialNumber"], s["Status"], s["MemorySummary"], s["AssetTag"] = 12345, 7, "x", 9
		}, "12345", 1},
		"object where a link": {func(s map[string]any) { s["Storage"] = "none" }, "S1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			c.change(bmc.Doc(bmctest.SystemPath))
			r := newRig(t, bmc)
			var inv driver.Inventory
			if err := json.Unmarshal(r.must(t, "inspect", "inspect", "[]"), &inv); err != nil {
				t.Fatal(err)
			}
			if inv.SerialNumber != c.serial || inv.Model != "E1" || inv.Power != "on" {
				t.Errorf("inventory %+v", inv)
			}
			if len(inv.Warnings) != c.warnings {
				t.Errorf("warnings %q, want %d", inv.Warnings, c.warnings)
			}
			r.must(t, "power", "setPower", `["off"]`)
			r.must(t, "power", "setPower", `["on"]`)
			r.must(t, "management", "setBootDevice", `["pxe"]`)
		})
	}
}

// Case 35: the PATCH carries the entity tag that the BMC counts, and none when there is none.
func TestPatchCarriesTheTag(t *testing.T) {
	for name, c := range map[string]struct {
		header, body, accepted string
		refusals               int
	}{
		"header":                      {`"h1"`, "", `"h1"`, 0},
		"body, weak":                  {"", `W/"1"`, `W/"1"`, 0},
		"body counts, not header":     {`"h1"`, `"b1"`, `"b1"`, 1},
		"weak must be sent strong":    {`W/"1"`, "", `"1"`, 1},
		"without quotes":              {"", "1779099411", "1779099411", 0},
		"compressed header":           {`"h1-gzip"`, "", `"h1"`, 0},
		"no tag, plain PATCH":         {"", "", "", 0},
		"empty tag is none":           {`""`, "", "", 0},
		"wrong tag, none is accepted": {`"old"`, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			if c.body != "" {
				bmc.Doc(bmctest.SystemPath)["@odata.etag"] = c.body
			}
			bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if c.header != "" && q.URL.Path == bmctest.SystemPath {
					w.Header().Set("ETag", c.header)
				}
				if q.Method != http.MethodPatch || q.Header.Get("If-Match") == c.accepted {
					return false
				}
				bmctest.Fail(w, http.StatusPreconditionRequired, "Ami.1.0.PreconditionHeaderMissing", "If-Match is needed.")
				return true
			}
			r := newRig(t, bmc)
			r.must(t, "management", "setBootDevice", `["pxe"]`)
			patches := bmc.Requests("PATCH")
			last := patches[len(patches)-1]
			if got := last.Header.Values("If-Match"); strings.Join(got, "|") != c.accepted || (c.accepted == "" && got != nil) {
				t.Errorf("If-Match %q, want %q", got, c.accepted)
			}
			if len(patches)-1 != c.refusals {
				t.Errorf("%d refusals, want %d", len(patches)-1, c.refusals)
			}
		})
	}
}

// What is there and cannot be read is named; the rest is read.
func TestUnreadableChildrenAreNamed(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		switch q.URL.Path {
		case bmctest.SystemPath + "/EthernetInterfaces":
			bmctest.Fail(w, http.StatusInternalServerError, "Base.1.8.InternalError", "Lost.")
			return true
		case "/redfish/v1/Chassis/1/Thermal":
			http.NotFound(w, q)
			return true
		}
		return false
	}
	r := newRig(t, bmc)
	for range 2 {
		var inv driver.Inventory
		if err := json.Unmarshal(r.must(t, "inspect", "inspect", "[]"), &inv); err != nil {
			t.Fatal(err)
		}
		if inv.Model != "E1" || inv.BMC == nil || len(inv.Warnings) != 1 || !strings.Contains(inv.Warnings[0], "EthernetInterfaces") {
			t.Errorf("inventory %+v", inv)
		}
	}
}
