package console_test

import (
	"encoding"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/web/webtest"
)

// fielded is a form with fields: where it is posted to, the route that it asks, the page that shows a refusal.
type fielded struct {
	post, route string
	page        string   // "": the machine's
	form        string   // what tells it apart on its page; IDENT stands for the id in the path
	id          string   // of the machine, or whatever else the path names
	also        []string // members that the route answers with besides those of its body
	unsent      []string // members of the body that the form does not send, or sends by a button; with what is inside them
}

// fieldedForms are the forms that have fields, each with what its route can complain of.
func fieldedForms(x *webtest.Site) []fielded {
	subnets, err := x.Store.ListSubnets(x.T.Context())
	if err != nil || len(subnets) == 0 {
		x.T.Fatal(err)
	}
	net := subnets[0].ID
	user, err := x.Store.User(x.T.Context(), string(app.RoleAdmin))
	if err != nil {
		x.T.Fatal(err)
	}
	approvals, err := x.Store.ListApprovals(x.T.Context())
	if err != nil || len(approvals) == 0 {
		x.T.Fatal(err)
	}
	accepted := []string{"force"}
	return []fielded{
		{post: "/machines/enroll", route: "machines.enroll", page: "/machines/enroll", unsent: accepted},
		{post: "/discovered/{mac}/accept", route: "discoveries.accept", page: "/discovered/{mac}", id: "00:00:5e:00:53:77"},
		{post: "/machines/{id}/bmc", route: "machines.set-bmc", page: "/machines/{id}/bmc", id: "m-1", unsent: []string{"anotherMachine", "test"}},
		{post: "/machines/{id}/edit", route: "machines.change", form: "edit", id: "m-1", unsent: []string{"drivers", "productUuid", "force", "firmware"}},
		{post: "/machines/{id}/drivers", route: "machines.change", form: "drivers", id: "m-1",
			unsent: []string{"name", "pool", "hardwareProfile", "bootOrder", "note", "labels", "productUuid", "force", "firmware"}},
		{post: "/machines/{id}/commission", route: "machines.commission", form: "commission", id: "m-3", also: []string{"test"}},
		{post: "/machines/{id}/deploy", route: "machines.deploy", page: "/machines/{id}/deploy", id: "m-1", also: []string{"confirm", "disk"},
			unsent: []string{"coldProof", "wipeOthers", "skipChecks", "redeploy", "console", "network"}},
		{post: "/machines/{id}/release", route: "machines.release", page: "/machines/{id}/release", id: "m-1", also: []string{"confirm"}},
		{post: "/machines/{id}/rescue", route: "machines.rescue", form: "rescue", id: "m-3"},
		{post: "/machines/{id}/boot-iso", route: "machines.boot-iso", form: "iso", id: "m-1", also: []string{"confirm"}, unsent: []string{"overDeployed"}},
		{post: "/machines/{id}/override", route: "machines.override", form: "override", id: "m-4", unsent: []string{"state"}},
		{post: "/machines/{id}/lock", route: "machines.lock", form: "lock", id: "m-1"},
		{post: "/machines/{id}/delete", route: "machines.delete", form: "delete", id: "m-1", also: []string{"confirm"}, unsent: []string{"reason", "powerOff", "force"}},
		{post: "/machines/{id}/network", route: "machines.network.put", page: "/machines/{id}/network", id: "m-3", also: []string{"network", "network.links[0].mac"}},
		{post: "/machines/batch", route: "machines.batch.deploy", page: "/machines", also: []string{"id", "verb", "image", "options.image"},
			unsent: []string{"filter", "options", "confirm"}},
		{post: "/workflows/{id}/mark-done", route: "workflows.mark-done", page: "/workflows/{id}", form: "mark-done", id: "w-3"},
		{post: "/workflows/{id}/abort", route: "workflows.abort", page: "/workflows/{id}", form: "abort", id: "w-1"},
		{post: "/approvals/{id}", route: "approvals.decide", page: "/approvals", form: "IDENT", id: approvals[0].ID, unsent: []string{"deny"}},
		{post: "/images", route: "images.import", page: "/images", form: "upload", also: []string{"file"}, unsent: []string{"url", "path"}},
		{post: "/images/import", route: "images.import", page: "/images", form: "import"},
		{post: "/network/subnets", route: "subnets.create", page: "/network", form: "subnet:", also: []string{"duration"}, unsent: []string{"noProbe", "discover", "tftpSinglePort"}},
		{post: "/network/subnets/{id}", route: "subnets.change", page: "/network", form: "subnet:IDENT", id: net, unsent: []string{"noProbe", "discover", "tftpSinglePort"}},
		{post: "/network/subnets/{id}/mode", route: "subnets.mode", page: "/network", form: "mode:IDENT", id: net, unsent: []string{"despiteRival"}},
		{post: "/network/subnets/{id}/reservations", route: "subnets.reserve", page: "/network", form: "reserve:IDENT", id: net},
		{post: "/profiles", route: "profiles.put", page: "/profiles/new", form: "profile:", also: []string{"name", "hardware"}, unsent: []string{"kexecProven"}},
		{post: "/pools", route: "pools.put", page: "/profiles", form: "pool:", also: []string{"name"}},
		{post: "/access/users", route: "users.create", page: "/access", form: "user"},
		{post: "/access/users/{id}", route: "users.change", page: "/access", form: "user:IDENT", id: user.ID, unsent: []string{"disabled"}},
		{post: "/access/tokens", route: "tokens.create", page: "/access", form: "token"},
		{post: "/access/password", route: "session.password", page: "/access", form: "password"},
		{post: "/settings", route: "settings.change", page: "/settings", form: "settings"},
		{post: "/secrets", route: "secrets.put", page: "/settings", form: "secret", also: []string{"secret"}},
		{post: "/setup", route: "setup.create", page: "/setup"},
		{post: "/login", route: "session.login", page: "/login"},
	}
}

// fieldless are the forms that are buttons: what is wrong with them stands above the page.
var fieldless = []string{
	"/logout", "/machines/{id}/confirm-mac", "/machines/{id}/forget-kexec", "/machines/{id}/network/delete", "/machines/{id}/exit-rescue", "/machines/{id}/exit-iso",
	"/machines/{id}/adopt", "/machines/{id}/power", "/machines/{id}/rotate-credential", "/machines/{id}/abort", "/machines/{id}/retry", "/machines/{id}/unlock", "/machines/{id}/retire",
	"/workflows/{id}/retry", "/images/{id}/delete", "/network/subnets/{id}/rivals", "/network/subnets/{id}/delete", "/network/subnets/{id}/reservations/{mac}/delete",
	"/network/leases/delete", "/discovered/{mac}/delete", "/ports/{id}/answer", "/ports/{id}/forget", "/plugins/{name}/restart", "/drivers/{id}/pick",
	"/profiles/{name}/delete", "/pools/{name}/delete", "/access/users/{id}/delete", "/access/tokens/{id}/delete", "/secrets/{name}/delete",
}

// membersOf lists the members of a request body by the paths that errors name them by.
func membersOf(t reflect.Type, at string, depth int) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	out := []string{at}
	if at == "" {
		out = nil
	}
	_, text := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	switch {
	case text || depth > 4 || t == reflect.TypeFor[json.RawMessage]():
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case name == "" && f.Anonymous:
				out = append(out, membersOf(f.Type, at, depth)...)
			default:
				out = append(out, membersOf(f.Type, strings.TrimPrefix(at+"."+name, "."), depth+1)...)
			}
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		out = append(out, membersOf(t.Elem(), at+"[0]", depth+1)...)
	case t.Kind() == reflect.Map:
		out = append(out, membersOf(t.Elem(), at+".power", depth+1)...)
	}
	return out
}

// Whatever a form's route complains of, the complaint stands at a field of that form, which says so to those who do not see it.
func TestEveryFieldErrorStandsAtItsField(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	x.As(app.RoleAdmin)
	requests := map[string]reflect.Type{}
	for _, rt := range x.Server.API.Routes() {
		requests[rt.ID] = rt.Request
	}
	user, err := x.Store.User(t.Context(), string(app.RoleAdmin))
	if err != nil {
		t.Fatal(err)
	}
	who := &access.Identity{User: *user, Permissions: access.PermissionsOf(app.RoleAdmin)}
	forms := fieldedForms(x)
	var known []string
	for _, f := range forms {
		known = append(known, f.post)
		if requests[f.route] == nil {
			t.Fatalf("%s asks the route %s, which takes nothing", f.post, f.route)
		}
		for _, member := range append(membersOf(requests[f.route], "", 0), f.also...) {
			if !slices.Contains(f.also, member) && slices.ContainsFunc(f.unsent, func(u string) bool {
				return member == u || strings.HasPrefix(member, u+".") || strings.HasPrefix(member, u+"[")
			}) {
				continue
			}
			if wrong := refusedAt(t, x, f, who, member); wrong != "" {
				t.Errorf("%s, error at %s: %s", f.post, member, wrong)
			}
		}
	}
	for _, p := range x.Server.Console.Pages() {
		if p.Method == "POST" && !slices.Contains(known, p.Path) && !slices.Contains(fieldless, p.Path) {
			t.Errorf("the form %s is in no list", p.Path)
		}
	}
}

// refusedAt serves the page of a form that was refused at a member, and says what is missing at the member's field.
func refusedAt(t *testing.T, x *webtest.Site, f fielded, who *access.Identity, member string) string {
	t.Helper()
	page := f.page
	if page == "" {
		page = "/machines/{id}"
	}
	if page == "/setup" || page == "/login" {
		who = nil
	}
	params := map[string]string{"id": f.id, "mac": f.id, "name": f.id}
	sent := url.Values{"form": {strings.Replace(f.form, "IDENT", f.id, 1)}}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "https://bcd.example/", nil)
	if page == "/login" || page == "/setup" {
		w = entry(x, page, member)
	} else if err := x.Server.Console.Refused(w, r, page, params, who, sent, app.Invalid(member, "is so odd").Do("mend it")); err != nil {
		return err.Error()
	}
	doc, err := html.Parse(w.Body)
	if err != nil {
		return err.Error()
	}
	var wrongs []*html.Node
	walk(doc, func(n *html.Node) {
		if n.Type == html.ElementNode && valueOf(n, "class") == "wrong" {
			wrongs = append(wrongs, n)
		}
	})
	if len(wrongs) != 1 {
		return "it stands at " + strings.Repeat("|", len(wrongs)) + " fields, not at one"
	}
	action := strings.NewReplacer("{id}", f.id, "{mac}", f.id).Replace(f.post)
	return atField(wrongs[0], action)
}

// atField says what keeps a message from standing at a field of the form that is sent to action.
func atField(wrong *html.Node, action string) string {
	id, form := "", (*html.Node)(nil)
	for n := wrong; n != nil; n = n.Parent {
		if id == "" {
			id = valueOf(n, "id")
		}
		if n.Data == "form" && form == nil {
			form = n
		}
		if _, open := attr(n, "open"); n.Data == "details" && !open {
			return "it is folded away"
		}
	}
	if form == nil || valueOf(form, "action") != action {
		return "it is not in the form"
	}
	described := false
	walk(form, func(n *html.Node) {
		if slices.Contains([]string{"input", "select", "textarea", "fieldset"}, n.Data) && id != "" && valueOf(n, "aria-describedby") == id {
			described = n.Data == "fieldset" || valueOf(n, "aria-invalid") == "true"
		}
	})
	if !described {
		return "no field is described by it"
	}
	return ""
}

func walk(n *html.Node, visit func(*html.Node)) {
	visit(n)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		walk(c, visit)
	}
}

// valueOf is an attribute's value, "" when it is not there.
func valueOf(n *html.Node, name string) string { v, _ := attr(n, name); return v }

// entry renders a page before the login as it refuses.
func entry(x *webtest.Site, page, member string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(x.T.Context(), "GET", "https://bcd.example"+page, nil)
	if err := x.Server.Console.RefusedEntry(w, r, page, app.Invalid(member, "is so odd")); err != nil {
		x.T.Fatal(err)
	}
	return w
}

// What is refused on its whole way through the API stands at its field too.
func TestARefusedFormMarksItsField(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	admin := x.As(app.RoleAdmin)
	user, err := x.Store.User(t.Context(), string(app.RoleAdmin))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, target, body, field string }{
		{"a BMC's key that is none", "/machines/m-1/bmc", form("address", "192.0.2.9", "acceptPin", "zz"), "acceptPin"},
		{"a BMC's login without its password", "/machines/m-1/bmc", form("address", "192.0.2.9", "username", "root"), "username"},
		{"a BMC's address of two lines", "/machines/m-1/bmc", form("address", "192.0.2.9\n192.0.2.10"), "address"},
		{"options that are no object", "/machines/m-1/bmc", form("address", "192.0.2.9", "driverOptions", "7"), "driverOptions"},
		{"a new password that is too short", "/access/password", form("form", "password", "old", webtest.Password, "new", "short"), "new"},
		{"a present password that is wrong", "/access/password", form("form", "password", "old", "not this one", "new", "long enough, I hope"), "old"},
		{"another user's password that is too short", "/access/users/" + user.ID, form("form", "user:"+user.ID, "role", "admin", "newPassword", "short"), "newPassword"},
		{"a link that is none", "/machines/m-3/network", form("network", "links: [{name: lan0, kind: port, mtu: 3}]"), "network"},
		{"a BIOS setting that is a list", "/profiles", form("form", "profile:", "name", "gpu", "hardware", "biosSettings: {a: [1]}"), "hardware"},
		{"a member that no profile has", "/profiles", form("form", "profile:", "name", "gpu", "hardware", "colour: red"), "hardware"},
		{"a kind of driver that is none", "/machines/m-1/drivers", form("form", "drivers", "drivers", "power: {driver: 7}"), "drivers"},
		{"a digest that is none", "/images/import", form("form", "import", "name", "x", "url", "https://images.example/x", "sha256", strings.Repeat("z", 128)), "sha256"},
		{"a reason that is missing", "/machines/m-4/override", form("form", "override", "state", "ready"), "reason"},
	} {
		w := x.Do("POST", c.target, admin, c.body)
		marked := ""
		for _, n := range parse(t, w.Body.String()) {
			if valueOf(n, "aria-invalid") == "true" {
				marked += valueOf(n, "name")
			}
		}
		if w.Code/100 != 4 || marked != c.field {
			t.Errorf("%s: %d, marked %q", c.name, w.Code, marked)
		}
	}
}
