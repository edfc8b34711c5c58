package web_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

func document(t *testing.T, raw []byte) (map[string]any, *jsonschema.Compiler) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any), c
}

// The document is complete, every reference resolves, every schema is JSON Schema 2020-12, every id is used once.
func TestOpenAPIDocumentIsValid(t *testing.T) {
	x := site(t)
	w := x.Do("GET", "/api/v1/openapi.json", "", "")
	doc, c := document(t, w.Body.Bytes())
	if doc["openapi"] != "3.1.0" {
		t.Errorf("openapi %v", doc["openapi"])
	}
	for name := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	for _, ref := range regexp.MustCompile(`"\$ref": "#([^"]+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
		var at any = doc
		for _, part := range strings.Split(ref[1], "/")[1:] {
			m, _ := at.(map[string]any)
			if at = m[part]; at == nil {
				t.Errorf("reference %s leads nowhere", ref[1])
				break
			}
		}
	}
	ids, cli := map[string]bool{}, map[api.CLI]bool{}
	paths := doc["paths"].(map[string]any)
	for _, rt := range api.Routes() {
		op, _ := paths[rt.Path].(map[string]any)[strings.ToLower(rt.Method)].(map[string]any)
		if op == nil || op["summary"] == "" || op["x-bcd-permission"] != string(rt.Permission) {
			t.Errorf("%s: %v", rt.ID, op)
		}
		if ids[rt.ID] || rt.CLI != (api.CLI{}) && cli[rt.CLI] {
			t.Errorf("%s %v is used twice", rt.ID, rt.CLI)
		}
		ids[rt.ID], cli[rt.CLI] = true, true
	}
}

// What the API answers is what the document says, for every read, on a site with something of everything.
func TestAnswersMatchTheDocument(t *testing.T) {
	x := site(t)
	webtest.Demo(x, webtest.Hostile)
	x.Record(app.Record{MAC: "00:00:5e:00:53:77", Kind: "dhcp.heard", Level: "info", Message: "A machine tried to netboot."})
	admin := x.As(app.RoleAdmin)
	doc, c := document(t, x.Do("GET", "/api/v1/openapi.json", "", "").Body.Bytes())
	for _, call := range []struct{ method, target, path, body string }{
		{"POST", "/api/v1/machines", "", strings.Replace(enrollJSON, "53-01", "53-AA", 1)},
		{"POST", "/api/v1/machines/test-bmc", "", `{"driver":"redfish","address":"192.0.2.10","credentialsRef":"secret://root/x"}`},
		{"POST", "/api/v1/machines/node1/commission", "/api/v1/machines/{id}/commission", `{}`},
		{"POST", "/api/v1/machines/actions/lock", "", `{"ids":["node1"],"options":{"reason":"x"}}`},
		{"POST", "/api/v1/subnets", "", `{"cidr":"203.0.113.0/24"}`},
		{"POST", "/api/v1/users", "", `{"name":"bob","password":"correct horse","role":"viewer"}`},
		{"POST", "/api/v1/tokens", "", `{"name":"ci","permissions":["compute:machines:read"],"expiresIn":"1h"}`},
		{"PUT", "/api/v1/pools/b", "/api/v1/pools/{name}", `{"policy":{"hardwareProfile":"r640"}}`},
		{"PATCH", "/api/v1/settings", "", `{"siteName":"x"}`},
		{"GET", "/api/v1/machines", "", ""}, {"GET", "/api/v1/machines/m-1", "/api/v1/machines/{id}", ""}, {"GET", "/api/v1/machines/m-1/inventory", "/api/v1/machines/{id}/inventory", ""},
		{"GET", "/api/v1/discoveries", "", ""}, {"GET", "/api/v1/port-questions", "", ""}, {"GET", "/api/v1/images", "", ""}, {"GET", "/api/v1/images/debian-12", "/api/v1/images/{id}", ""},
		{"GET", "/api/v1/workflows", "", ""}, {"GET", "/api/v1/workflows/w-2", "/api/v1/workflows/{id}", ""}, {"GET", "/api/v1/workflows/w-1/journal", "/api/v1/workflows/{id}/journal", ""},
		{"GET", "/api/v1/events", "", ""}, {"GET", "/api/v1/subnets", "", ""}, {"GET", "/api/v1/leases", "", ""}, {"GET", "/api/v1/drivers", "", ""}, {"PUT", "/api/v1/drivers/redfish/active", "/api/v1/drivers/{id}/active", `{"version":"1.0.0"}`}, {"GET", "/api/v1/plugins", "", ""}, {"GET", "/api/v1/plugins/acme-bmc/logs?lines=5", "/api/v1/plugins/{name}/logs", ""},
		{"GET", "/api/v1/profiles", "", ""}, {"GET", "/api/v1/profiles/r640", "/api/v1/profiles/{name}", ""}, {"GET", "/api/v1/pools", "", ""}, {"GET", "/api/v1/approvals", "", ""}, {"GET", "/api/v1/approvals/ap-1", "/api/v1/approvals/{id}", ""},
		{"GET", "/api/v1/machines/m-1/kexec", "/api/v1/machines/{id}/kexec", ""},
		{"GET", "/api/v1/machines/m-1/bmc-operations", "/api/v1/machines/{id}/bmc-operations", ""}, {"POST", "/api/v1/machines/m-1/query", "/api/v1/machines/{id}/query", `{"operation":"power.getPower"}`},
		{"POST", "/api/v1/profiles/x/check", "/api/v1/profiles/{name}/check", `{"drivers":{"power":"nothing"}}`}, {"POST", "/api/v1/approvals/ap-1/decision", "/api/v1/approvals/{id}/decision", `{"deny":true}`}, {"GET", "/api/v1/secrets", "", ""},
		{"GET", "/api/v1/users", "", ""}, {"GET", "/api/v1/tokens", "", ""}, {"GET", "/api/v1/settings", "", ""}, {"GET", "/api/v1/health", "", ""},
		{"GET", "/api/v1/machines/m-2/timeline?limit=3", "/api/v1/machines/{id}/timeline", ""}, {"GET", "/api/v1/machines/m-1/tests", "/api/v1/machines/{id}/tests", ""},
		{"GET", "/api/v1/discoveries/00:00:5e:00:53:77/timeline", "/api/v1/discoveries/{mac}/timeline", ""}, {"GET", "/api/v1/workflows/w-4/certificate", "/api/v1/workflows/{id}/certificate", ""}, {"GET", "/api/v1/certificates", "", ""},
		{"PUT", "/api/v1/machines/m-3/network", "/api/v1/machines/{id}/network", `{"links":[{"name":"lan0","kind":"port","mac":"00:00:5e:00:53:13","dhcp":true}]}`},
		{"GET", "/api/v1/machines/m-3/network", "/api/v1/machines/{id}/network", ""}, {"DELETE", "/api/v1/machines/m-3/network", "/api/v1/machines/{id}/network", ""},
		{"POST", "/api/v1/subnets/net-2/mode", "/api/v1/subnets/{id}/mode", `{"mode":"http"}`}, {"POST", "/api/v1/subnets/net-1/rivals", "/api/v1/subnets/{id}/rivals", ""},
		{"POST", "/api/v1/subnets/net-2/reservations", "/api/v1/subnets/{id}/reservations", `{"mac":"00:00:5e:00:53:0b","address":"198.51.100.11"}`},
		{"DELETE", "/api/v1/subnets/net-2/reservations/00:00:5e:00:53:0b", "/api/v1/subnets/{id}/reservations/{mac}", ""},
		{"GET", "/api/v1/session", "", ""}, {"GET", "/api/v1/setup", "", ""}, {"GET", "/api/v1/version", "", ""}, {"GET", "/api/v1/machines/nobody", "/api/v1/machines/{id}", ""},
	} {
		w := x.Do(call.method, call.target, admin, call.body)
		path := call.path
		if path == "" {
			path = call.target
		}
		if w.Code == http.StatusNoContent {
			op, _ := doc["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(call.method)].(map[string]any)
			responses, _ := op["responses"].(map[string]any)
			if said, ok := responses["204"].(map[string]any); !ok || said["content"] != nil || w.Body.Len() > 0 {
				t.Errorf("%s %s: 204 with %q, documented as %v", call.method, call.target, w.Body, responses["204"])
			}
			continue
		}
		where := "openapi.json#/paths/" + strings.ReplaceAll(strings.NewReplacer("~", "~0", "/", "~1").Replace(path), "{", "%7B") + "/" + strings.ToLower(call.method) +
			"/responses/" + strconv.Itoa(w.Code) + "/content/application~1json/schema"
		where = strings.ReplaceAll(where, "}", "%7D")
		if w.Code == http.StatusNotFound {
			where = "openapi.json#/components/responses/Problem/content/application~1json/schema"
		} else if w.Code >= 300 {
			t.Errorf("%s %s: %d %s", call.method, call.target, w.Code, w.Body)
			continue
		}
		sch, err := c.Compile(where)
		if err != nil {
			t.Errorf("%s %s: %v", call.method, call.target, err)
			continue
		}
		got, err := jsonschema.UnmarshalJSON(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := sch.Validate(got); err != nil {
			b, _ := json.Marshal(got)
			t.Errorf("%s %s: %v\n%s", call.method, call.target, err, clip(string(b)))
		}
	}
}
