package console_test

import (
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/webtest"
)

// everyPage is every address that shows a page, on a site that webtest.Demo filled.
var everyPage = []string{"/", "/machines", "/machines?text=%22%3E%3Cscript%3E", "/machines/enroll", "/machines/m-1", "/machines/m-2", "/machines/m-3", "/machines/m-4", "/machines/m-5",
	"/machines/m-3/deploy", "/machines/m-1/deploy", "/machines/m-1/release", "/discovered", "/discovered/00:00:5e:00:53:77", "/images", "/workflows", "/workflows?active=true", "/workflows/w-1", "/workflows/w-2",
	"/workflows/w-3", "/workflows/w-4", "/workflows/w-4/certificate", "/certificates", "/certificates?machine=rack1-node3", "/machines/m-3/network", "/network", "/drivers", "/plugins/acme-bmc", "/plugins/bcx-ipmi", "/profiles", "/profiles/new", "/profiles/edit/r640", "/approvals", "/access", "/settings", "/health", "/events", "/events?kind=dhcp.&machine=m-2", "/machines/m-2/timeline", "/machines/m-2/timeline?kind=console."}

func parse(t *testing.T, page string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var out []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			out = append(out, n)
		}
	}
	return out
}

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// Case 73: text from the wire is text on every page. No element, no handler, no address comes of it; and pages hold no
// script or style of their own, which the policy would refuse.
func TestHostileTextStaysText(t *testing.T) {
	x := site(t)
	webtest.Demo(x, webtest.Hostile)
	x.Plugins.Text = webtest.Hostile
	admin := x.As(app.RoleAdmin)
	seen := 0
	for _, path := range everyPage {
		w := x.Do("GET", path, admin, "")
		if w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
			continue
		}
		for _, n := range parse(t, w.Body.String()) {
			checkElement(t, path, n)
		}
		if strings.Contains(w.Body.String(), "onerror=alert(1)&gt;") {
			seen++
		}
		if strings.Contains(w.Body.String(), "<img src=x") {
			t.Errorf("%s shows the text unescaped", path)
		}
	}
	if seen != len(everyPage) {
		t.Errorf("the hostile text was looked for on %d of %d pages: the site's name shows it on each", seen, len(everyPage))
	}
}

func checkElement(t *testing.T, path string, n *html.Node) {
	t.Helper()
	src, _ := attr(n, "src")
	switch n.Data {
	case "style", "iframe", "object", "embed", "base", "svg":
		t.Errorf("%s has a <%s>", path, n.Data)
	case "script":
		if !strings.HasPrefix(src, "/assets/") || n.FirstChild != nil {
			t.Errorf("%s has a script of its own: %q", path, src)
		}
	case "img":
		if !strings.HasPrefix(src, "/assets/") {
			t.Errorf("%s has a foreign image %q", path, src)
		}
	}
	for _, a := range n.Attr {
		if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val)), "javascript:") {
			t.Errorf("%s: <%s %s=%q>", path, n.Data, a.Key, a.Val)
		}
	}
}

// The rest of case 73: a refused form shows what was typed, the stream carries it, O'Brien can be edited.
func TestHostileTextInFormsAndStreams(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	admin := x.As(app.RoleAdmin)
	w := x.Do("POST", "/machines/enroll", admin, "name=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E&bmc.driver=redfish&do=enroll")
	if w.Code != 422 {
		t.Fatalf("%d", w.Code)
	}
	kept := false
	for _, n := range parse(t, w.Body.String()) {
		checkElement(t, "refused form", n)
		if v, _ := attr(n, "value"); v == `"><script>alert(1)</script>` {
			kept = true
		}
	}
	if !kept {
		t.Error("the form lost what was typed")
	}
	w = x.Do("POST", "/machines/m-1/edit", admin, "name=rack1-node1&note=O%27Brien+%3Cb%3E&pool=compute&hardwareProfile=r640&labels=owner%3DO%27Brien")
	m, err := x.Store.Machine(t.Context(), "m-1")
	if err != nil || w.Code != 303 || m.Note != "O'Brien <b>" || m.Labels["owner"] != "O'Brien" {
		t.Fatalf("%d %+v %v", w.Code, m, err)
	}
	if page := x.Do("GET", "/machines/m-1", admin, "").Body.String(); !strings.Contains(page, "O&#39;Brien &lt;b&gt;") {
		t.Error("O'Brien is not shown literally")
	}
}

// What assistive technology needs of every page: a language, one heading, names for fields and buttons, ids used once.
func TestPagesCanBeReadAloud(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	admin := x.As(app.RoleAdmin)
	for _, path := range append([]string{"/login"}, everyPage...) {
		cookie := admin
		if path == "/login" {
			cookie = ""
		}
		checkReadable(t, path, parse(t, x.Do("GET", path, cookie, "").Body.String()))
	}
}

func checkReadable(t *testing.T, path string, nodes []*html.Node) {
	t.Helper()
	ids, labelled, h1 := map[string]bool{}, map[string]bool{}, 0
	for _, n := range nodes {
		if id, ok := attr(n, "id"); ok {
			if ids[id] {
				t.Errorf("%s uses the id %q twice", path, id)
			}
			ids[id] = true
		}
		if f, ok := attr(n, "for"); ok {
			labelled[f] = true
		}
		if n.Data == "h1" {
			h1++
		}
		if _, ok := attr(n, "lang"); n.Data == "html" && !ok {
			t.Errorf("%s has no language", path)
		}
	}
	if h1 != 1 {
		t.Errorf("%s has %d main headings", path, h1)
	}
	for _, n := range nodes {
		if n.Data == "input" || n.Data == "select" || n.Data == "textarea" {
			id, _ := attr(n, "id")
			_, aria := attr(n, "aria-label")
			kind, _ := attr(n, "type")
			if kind != "hidden" && !labelled[id] && !aria && n.Parent.Data != "label" {
				name, _ := attr(n, "name")
				t.Errorf("%s: <%s name=%q> has no label", path, n.Data, name)
			}
		}
	}
}
