package console_test

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

var streamRE = regexp.MustCompile(`sse-connect="([^"]+\?mark=[0-9a-f]{16})"`)

// firstEvent opens a stream as a browser does and gives the name of its first event.
func firstEvent(t *testing.T, url, cookie string) string {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: api.CookieName, Value: cookie})
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event:"); ok {
			return strings.TrimSpace(name)
		}
	}
	t.Fatalf("%s: %s ended without an event", url, res.Status)
	return ""
}

// What a page was made of may change while no stream tells it: between the page and its stream, or while the appliance is
// away. The stream that begins then says so first.
func TestStreamOfAStalePage(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	url, admin := x.Serve(), x.As(app.RoleAdmin)
	for page, change := range map[string]func(){
		"/machines/m-1": func() {
			_, err := x.Store.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.Locked = true; return nil })
			if err != nil {
				t.Fatal(err)
			}
		},
		"/workflows/w-1": func() {
			w, err := x.Flows.Get(t.Context(), "w-1")
			if err != nil {
				t.Fatal(err)
			}
			w.State = workflow.Done
			x.Flows.Put(*w)
		},
	} {
		m := streamRE.FindStringSubmatch(x.Do(http.MethodGet, page, admin, "").Body.String())
		if m == nil {
			t.Fatalf("%s has no stream", page)
		}
		if got := firstEvent(t, url+m[1], admin); got == "moved" {
			t.Errorf("%s: moved, and nothing did", page)
		}
		change()
		if got := firstEvent(t, url+m[1], admin); got != "moved" {
			t.Errorf("%s: the first event is %q", page, got)
		}
	}
}

// A plugin's page follows what its plugin does.
func TestAPluginsPageIsLive(t *testing.T) {
	x := site(t)
	url, viewer := x.Serve(), x.As(app.RoleViewer)
	m := streamRE.FindStringSubmatch(x.Do(http.MethodGet, "/plugins/acme-bmc", viewer, "").Body.String())
	if m == nil {
		t.Fatal("the page has no stream")
	}
	if got := firstEvent(t, url+m[1], viewer); got != "plugin" {
		t.Errorf("the first event is %q", got)
	}
	if got := firstEvent(t, url+"/plugins/bcx-ipmi/live?mark=0123456789abcdef", viewer); got != "moved" {
		t.Errorf("the first event of a stale page is %q", got)
	}
}
