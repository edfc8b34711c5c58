package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

func site(t *testing.T) *webtest.Site {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return webtest.New(t, db)
}

// refusal reads the body of an error answer.
func refusal(t *testing.T, w *httptest.ResponseRecorder) app.Error {
	t.Helper()
	var b struct {
		Error struct {
			app.Error
			RequestID string `json:"requestId"`
		} `json:"error"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
		t.Fatalf("error body %q: %v", w.Body, err)
	}
	if b.Error.Code == "" || b.Error.Message == "" || b.Error.RequestID == "" || b.Error.RequestID != w.Header().Get("X-Request-Id") {
		t.Errorf("error body lacks a code, a sentence or the request's id: %s", w.Body)
	}
	return b.Error.Error
}

const enrollJSON = `{"name":"node1","bmc":{"driver":"redfish","address":"192.0.2.10","credentials":{"username":"root","password":"s3cr3t-password"}},"macs":["00-00-5E-00-53-01"]}`

// Cases 69, 71 and 75 through the whole server: what is refused changes nothing.
func TestWritesRefuseWhatTheyDoNotUnderstand(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		field                      string
	}{
		{"unknown field", "POST", "/api/v1/machines", `{"name":"a","macs":["00:00:5e:00:53:01"],"isAdmin":true}`, 400, "isAdmin"},
		{"unknown nested field", "POST", "/api/v1/machines", `{"name":"a","bmc":{"driver":"redfish","adress":"x"}}`, 400, "adress"},
		{"null", "POST", "/api/v1/machines", `null`, 400, ""},
		{"array", "POST", "/api/v1/machines", `[]`, 400, ""},
		{"two documents", "POST", "/api/v1/machines", `{"name":"a","macs":["00:00:5e:00:53:01"]}{"name":"b"}`, 400, ""},
		{"trailing bracket", "POST", "/api/v1/machines", `{"name":"a","macs":["00:00:5e:00:53:01"]}}`, 400, ""},
		{"wrong type", "POST", "/api/v1/machines", `{"name":7}`, 400, "name"},
		{"cut off", "POST", "/api/v1/machines", `{"name":"a"`, 400, ""},
		{"empty", "POST", "/api/v1/machines", ``, 400, ""},
		{"query fills a field", "POST", "/api/v1/users?role=admin&isAdmin=true", `{"name":"eve","password":"correct horse"}`, 422, "role"},
		{"query on a patch", "PATCH", "/api/v1/users/admin?disabled=true", `{"state":"x"}`, 400, "state"},
		{"body on a read", "GET", "/api/v1/machines", `{"limit":5}`, 400, ""},
		{"unknown query of a read", "GET", "/api/v1/machines?limit=5&sort=name", ``, 400, "sort"},
		{"query of a read twice", "GET", "/api/v1/machines?limit=5&limit=6", ``, 400, "limit"},
		{"body where none belongs", "DELETE", "/api/v1/users/admin", `{"force":true}`, 400, ""},
		{"limit", "GET", "/api/v1/machines?limit=1001", ``, 422, "limit"},
		{"mac of five and a half", "POST", "/api/v1/machines", `{"name":"a","macs":["00:00:5e:0:53:ab"]}`, 422, "macs"},
		{"mac of seven", "POST", "/api/v1/machines", `{"name":"a","macs":["00:00:5e:00:53:ab:33"]}`, 422, "macs"},
		{"mac of zeros", "POST", "/api/v1/machines", `{"name":"a","macs":["00:00:00:00:00:00"]}`, 422, "macs"},
		{"broadcast", "POST", "/api/v1/machines", `{"name":"a","macs":["ff:ff:ff:ff:ff:ff"]}`, 422, "macs"},
		{"group address", "POST", "/api/v1/machines", `{"name":"a","macs":["01:00:5e:00:00:01"]}`, 422, "macs"},
		{"placeholder uuid", "POST", "/api/v1/machines", `{"name":"a","productUuid":"03000200-0400-0500-0006-000700080009"}`, 422, "productUuid"},
		{"name that is an address", "POST", "/api/v1/machines", `{"name":"actions","macs":["00:00:5e:00:53:01"]}`, 422, "name"},
		{"name with a script", "POST", "/api/v1/machines", `{"name":"<img src=x>","macs":["00:00:5e:00:53:01"]}`, 422, "name"},
		{"nothing identifies it", "POST", "/api/v1/machines", `{"name":"a"}`, 422, "bmc"},
		{"login twice", "POST", "/api/v1/machines", `{"name":"a","bmc":{"driver":"redfish","address":"x","credentialsRef":"secret://root/x","credentials":{"username":"u","password":"p"}}}`, 422, "bmc.credentials"},
		{"vault", "POST", "/api/v1/machines", `{"name":"a","bmc":{"driver":"redfish","address":"x","credentialsRef":"vault://kv"}}`, 422, "bmc.credentialsRef"},
		{"pin", "POST", "/api/v1/machines", `{"name":"a","bmc":{"driver":"redfish","address":"x","credentialsRef":"secret://root/x","tlsSpkiSha256":"abcd"}}`, 422, "bmc.tlsSpkiSha256"},
		{"batch of everything", "POST", "/api/v1/machines/actions/release", `{"filter":{}}`, 422, "filter"},
		{"batch of nothing", "POST", "/api/v1/machines/actions/release", `{}`, 422, "ids"},
		{"batch of a stranger", "POST", "/api/v1/machines/actions/release", `{"ids":["nobody"]}`, 404, "ids"},
		{"unknown verb", "POST", "/api/v1/machines/actions/explode", `{}`, 404, ""},
		{"no such address", "GET", "/api/v1/nothing", ``, 404, ""},
		{"wrong method", "PUT", "/api/v1/machines", `{}`, 405, ""},
		{"subnet with host bits", "POST", "/api/v1/subnets", `{"cidr":"192.0.2.1/24"}`, 422, "cidr"},
		{"pool outside", "POST", "/api/v1/subnets", `{"cidr":"192.0.2.0/24","poolStart":"198.51.100.1","poolEnd":"198.51.100.9"}`, 422, "poolStart"},
		{"duration as number", "POST", "/api/v1/subnets", `{"cidr":"192.0.2.0/24","leaseTime":3600}`, 422, "duration"},
		{"kind with upper case", "GET", "/api/v1/drivers?kind=Power", ``, 422, "kind"},
		{"kind with a space", "GET", "/api/v1/drivers?kind=a%20b", ``, 422, "kind"},
		{"kind too long", "GET", "/api/v1/drivers?kind=" + strings.Repeat("a", 33), ``, 422, "kind"},
		{"secret of numbers", "PUT", "/api/v1/secrets/a", `{"value":{"password":7}}`, 422, "value"},
		{"import without a digest", "POST", "/api/v1/images", `{"name":"a","url":"https://images.example/a.raw"}`, 422, "sha256"},
		{"import by a SHA-512 of another length", "POST", "/api/v1/images", `{"name":"a","url":"https://images.example/a.raw","sha512":"` + strings.Repeat("0", 64) + `"}`, 422, "sha512"},
		{"import by two digests", "POST", "/api/v1/images", `{"name":"a","url":"https://images.example/a.raw","sha256":"` + strings.Repeat("0", 64) + `","sha512":"` + strings.Repeat("0", 128) + `"}`, 422, "sha512"},
		{"import of a file URL", "POST", "/api/v1/images", `{"name":"a","url":"file:///etc/shadow","sha256":"` + strings.Repeat("0", 64) + `"}`, 422, "url"},
		{"import with a login in the URL", "POST", "/api/v1/images", `{"name":"a","url":"https://u:p@images.example/a","sha256":"` + strings.Repeat("0", 64) + `"}`, 422, "url"},
		{"import of a path with dots", "POST", "/api/v1/images", `{"name":"a","path":"/var/../etc/shadow"}`, 422, "path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := x.Do(c.method, c.target, admin, c.body)
			if w.Code != c.status {
				t.Fatalf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if e := refusal(t, w); e.Field != c.field {
				t.Errorf("field %q, want %q: %s", e.Field, c.field, w.Body)
			}
		})
	}
	nothingChanged(t, x)
}

func nothingChanged(t *testing.T, x *webtest.Site) {
	t.Helper()
	page, err := x.Store.ListMachines(t.Context(), app.MachineFilter{})
	if err != nil || page.Total != 0 {
		t.Errorf("machines: %d, %v", page.Total, err)
	}
	users, err := x.Store.ListUsers(t.Context())
	if err != nil || len(users) != 1 || users[0].Role != app.RoleAdmin || users[0].Disabled {
		t.Errorf("users: %+v, %v", users, err)
	}
	subnets, _ := x.Store.ListSubnets(t.Context())
	secrets, _ := x.Store.ListSecrets(t.Context())
	images, _ := x.Store.ListImages(t.Context())
	if len(subnets)+len(secrets)+len(images)+len(x.Service.Calls()) != 0 {
		t.Errorf("left behind: %v %v %v %v", subnets, secrets, images, x.Service.Calls())
	}
}

// Case 75: every accepted spelling of a MAC address becomes the one stored form, in every place that takes one.
func TestMACsInEverySpelling(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	const want = "00:00:5e:00:53:01"
	for i, s := range []string{"00-00-5E-00-53-01", "0000.5e00.5301", "00005E005301", want} {
		name := "node" + string(rune('a'+i))
		w := x.Do("POST", "/api/v1/machines", admin, `{"name":"`+name+`","macs":["`+s+`"]}`)
		if w.Code != 201 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", s, w.Code, w.Body)
		}
		if err := x.Store.PutDiscovery(t.Context(), &app.Discovery{MAC: want}); err != nil {
			t.Fatal(err)
		}
		if w := x.Do("DELETE", "/api/v1/discoveries/"+s, admin, ""); w.Code != 204 {
			t.Errorf("discovery by %s: %d %s", s, w.Code, w.Body)
		}
		m, err := x.Store.Machine(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Store.DeleteMachine(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEnrollListBatchAndOneVerb(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	w := x.Do("POST", "/api/v1/machines", op, enrollJSON)
	if w.Code != 201 || strings.Contains(w.Body.String(), "s3cr3t") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w = x.Do("GET", "/api/v1/machines?text=node&state=enrolled,ready", op, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"total":1`) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w = x.Do("POST", "/api/v1/machines/node1/commission", op, ""); w.Code != 202 || !strings.Contains(w.Body.String(), "w-1") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w = x.Do("POST", "/api/v1/machines/actions/deploy", op, `{"filter":{"states":["enrolled"]},"options":{"image":"debian"}}`); w.Code != 202 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	x.Service.Err = app.Errorf(app.Conflict, "busy", "node1 is busy").Do("wait")
	if w = x.Do("POST", "/api/v1/machines/node1/power", op, `{"action":"on"}`); w.Code != 409 || refusal(t, w).WayOut != "wait" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	calls := x.Service.Calls()
	if len(calls) != 4 || calls[2].What != "deploy" || calls[2].Actor != "operator" || calls[2].In.(api.VerbOptions).Deploy.Image != "debian" {
		t.Errorf("calls = %+v", calls)
	}
	if strings.Contains(x.Logs.String(), "s3cr3t") {
		t.Error("the BMC password is in the log")
	}
}

// Every route, over HTTP, for every role and for nobody: what the table says is what happens.
func TestEveryRouteAsksForItsPermission(t *testing.T) {
	x := site(t)
	cookies := map[string]string{"nobody": "", "stale": strings.Repeat("A", 43)}
	for _, r := range []app.Role{app.RoleAdmin, app.RoleOperator, app.RoleViewer} {
		cookies[string(r)] = x.As(r)
	}
	// A request that is denied must not have been looked at, so the body may be nonsense.
	for _, rt := range x.API.Routes() {
		if rt.Permission == "" {
			t.Errorf("%s has no permission", rt.ID)
		}
		if rt.ID == "session.logout" || rt.ID == "events.stream" {
			continue // ends the session; never ends
		}
		target := strings.NewReplacer("{id}", "none", "{mac}", "00:00:5e:00:53:09", "{name}", "none", "{address}", "192.0.2.9").Replace(rt.Path)
		for who, cookie := range cookies {
			w := x.Do(rt.Method, target, cookie, "")
			want := 0
			role := app.Role(who)
			switch {
			case rt.Permission == api.Public:
			case who == "nobody" || who == "stale":
				want = http.StatusUnauthorized
			case rt.Permission != api.LoggedIn && !holds(role, rt.Permission):
				want = http.StatusForbidden
			}
			denied := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden
			if want != 0 && w.Code != want || want == 0 && denied && rt.Permission != api.Public {
				t.Errorf("%s %s as %s: %d, want %d: %s", rt.Method, rt.Path, who, w.Code, want, w.Body)
			}
		}
	}
}
