package web_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// Case 71: raw request targets over a real connection. Whatever the spelling, the guard and the handlers see one path.
func TestPathsHaveOneSpelling(t *testing.T) {
	x := site(t)
	addr := strings.TrimPrefix(x.Serve(), "https://")
	for target, status := range map[string]int{
		"/assets/..%2f..%2fetc/passwd": 400, "/admin%2fprivate.txt": 400, "/%2e%2e/x": 400, "/..%5cx": 400, "/../x": 400, "../x": 400,
		"//api/v1/machines": 400, "/api//v1/machines": 400, "/api/v1/machines/": 400, "/api/v1/x%00": 400, "/api/v1/machines%2fm-1": 400,
		"/api/v1/./machines": 400, "/api/v1/machines%252f": 400, "/api/v1/machines/a\\b": 400, "/api/v1/machines;x=1": 400, "/api/v1/%6dachines": 401,
		"/api/v1/machines": 401, "/assets/nothing.css": 404, "/assets/": 400, "/" + strings.Repeat("a", 2000): 400,
		"http://bcd.example/api/v1/machines": 401, "*": 400,
	} {
		if got := raw(t, addr, target); got != status {
			t.Errorf("GET %s: %d, want %d", clip(target), got, status)
		}
	}
}

func clip(s string) string { return s[:min(len(s), 60)] }

// raw sends one request line as it is.
func raw(t *testing.T, addr, target string) int {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // the pin is another test's
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: bcd.example\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if strings.Contains(string(body), "root:") {
		t.Errorf("%s served a file of the machine", target)
	}
	return resp.StatusCode
}

func TestOtherSitesCannotPost(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	for name, c := range map[string]struct {
		header, value string
		status        int
	}{
		"another site":        {"Sec-Fetch-Site", "cross-site", 403},
		"a sibling":           {"Sec-Fetch-Site", "same-site", 403},
		"old browser":         {"Origin", "https://evil.example", 403},
		"sandboxed frame":     {"Origin", "null", 403},
		"itself":              {"Sec-Fetch-Site", "same-origin", 303},
		"itself, by origin":   {"Origin", "https://bcd.example", 303},
		"no browser, no hint": {"Accept", "*/*", 303},
	} {
		r := httptest.NewRequest("POST", "https://bcd.example/settings", strings.NewReader("siteName=x"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(c.header, c.value)
		r.AddCookie(&http.Cookie{Name: api.CookieName, Value: admin})
		if w := x.Send(r); w.Code != c.status {
			t.Errorf("%s: %d, want %d", name, w.Code, c.status)
		}
	}
}

func TestEveryAnswerIsArmoured(t *testing.T) {
	x := site(t)
	for _, target := range []string{"/login", "/api/v1/machines", "/nothing", "/api/v1/openapi.json", "/%2e%2e/"} {
		h := x.Do("GET", target, "", "").Header()
		csp := h.Get("Content-Security-Policy")
		if csp == "" || strings.Contains(csp, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Request-Id") == "" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", target, h)
		}
	}
	w := x.Do("POST", "/api/v1/session", "", `{"name":"nobody","password":"nothing at all"}`)
	if w.Code != 401 {
		t.Errorf("login: %d", w.Code)
	}
	x.As(app.RoleAdmin)
	w = x.Do("POST", "/api/v1/session", "", `{"name":"admin","password":"correct horse battery"}`)
	k := w.Result().Cookies()
	if w.Code != 201 || len(k) != 1 || !k[0].Secure || !k[0].HttpOnly || k[0].SameSite != http.SameSiteLaxMode || !strings.HasPrefix(k[0].Name, "__Host-") {
		t.Errorf("%d %+v", w.Code, k)
	}
}

func TestUnknownErrorsAreAnIDAndOneLogLine(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	x.Service.Err = io.ErrUnexpectedEOF
	w := x.Do("POST", "/api/v1/machines", admin, enrollJSON)
	e := refusal(t, w)
	if w.Code != 500 || e.Code != app.Internal || strings.Contains(w.Body.String(), "EOF") || !strings.Contains(e.WayOut, w.Header().Get("X-Request-Id")) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if n := strings.Count(x.Logs.String(), w.Header().Get("X-Request-Id")); n != 1 || !strings.Contains(x.Logs.String(), "unexpected EOF") {
		t.Errorf("logged %d times: %s", n, x.Logs)
	}
}

func TestTokensOverHTTP(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	w := x.Do("POST", "/api/v1/tokens", op, `{"name":"ci","permissions":["compute:machines:read"],"expiresIn":"1h"}`)
	if w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	_, rest, _ := strings.Cut(w.Body.String(), `"value":"`)
	value, _, _ := strings.Cut(rest, `"`)
	for _, c := range []struct {
		header, target string
		status         int
	}{
		{"Bearer " + value, "/api/v1/machines", 200}, {"bearer  " + value, "/api/v1/machines", 200}, {"Bearer " + value, "/api/v1/images", 403},
		{"Bearer " + value + "x", "/api/v1/machines", 401}, {"Basic " + value, "/api/v1/machines", 401}, {value, "/api/v1/machines", 401}, {"Bearer x", "/api/v1/openapi.json", 401},
	} {
		r := httptest.NewRequest("GET", "https://bcd.example"+c.target, nil)
		r.Header.Set("Authorization", c.header)
		if w := x.Send(r); w.Code != c.status {
			t.Errorf("%q %s: %d, want %d", clip(c.header), c.target, w.Code, c.status)
		}
	}
	x.Clock.Add(60 * 60e9)
	r := httptest.NewRequest("GET", "https://bcd.example/api/v1/machines", nil)
	r.Header.Set("Authorization", "Bearer "+value)
	if w := x.Send(r); w.Code != 401 {
		t.Errorf("after its end: %d", w.Code)
	}
}

func TestPlainHTTPIsToldSo(t *testing.T) {
	x := site(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(x.Serve(), "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	b, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(b), "HTTP/1.0 400") {
		t.Errorf("%q", b)
	}
}

// A page about an error is one of the console's pages: whoever is logged in keeps the navigation, the name of the site, the
// number of problems, and the way out of the session.
func TestAnErrorsPageKeepsItsFrame(t *testing.T) {
	x := site(t)
	x.API.SiteName = "Row B"
	x.Health.List = []api.Warning{{Level: "warn"}}
	viewer := x.As(app.RoleViewer)
	for name, c := range map[string]struct {
		method, target, header, value string
		status                        int
	}{
		"nothing there":         {"GET", "/nothing", "", "", 404},
		"a path that is none":   {"GET", "/machines//x", "", "", 400},
		"no such machine":       {"GET", "/machines/m-none", "", "", 404},
		"not allowed":           {"GET", "/machines/enroll", "", "", 403},
		"another site's form":   {"POST", "/settings", "Sec-Fetch-Site", "cross-site", 403},
		"a method that is none": {"POST", "/health", "", "", 405},
	} {
		r := httptest.NewRequest(c.method, "https://bcd.example"+c.target, nil)
		if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		r.AddCookie(&http.Cookie{Name: api.CookieName, Value: viewer})
		w := x.Send(r)
		if body := w.Body.String(); w.Code != c.status || !strings.Contains(body, "<small>Row B</small>") || !strings.Contains(body, `class="count"`) || !strings.Contains(body, `action="/logout"`) {
			t.Errorf("%s: %d %s", name, w.Code, body)
		}
	}
}

// The configuration names the site until a person does; a form that is saved as it came leaves it so.
func TestASiteHasOneName(t *testing.T) {
	x := site(t)
	x.API.SiteName = "Row B"
	admin := x.As(app.RoleAdmin)
	for _, step := range []struct{ set, want string }{{"Row B", "Row B"}, {"Row C", "Row C"}, {"", "Row B"}} {
		if w := x.Do("PATCH", "/api/v1/settings", admin, `{"siteName":"`+step.set+`"}`); w.Code != 200 || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%q: %d %s", step.set, w.Code, w.Body)
		}
		if got := x.Do("GET", "/health", admin, "").Body.String(); !strings.Contains(got, "<small>"+step.want+"</small>") {
			t.Errorf("after %q the console says %s", step.set, got)
		}
	}
	x.Do("PATCH", "/api/v1/settings", admin, `{"siteName":"Row B"}`)
	x.API.SiteName = "Row D"
	if w := x.Do("GET", "/api/v1/settings", admin, ""); !strings.Contains(w.Body.String(), "Row D") {
		t.Errorf("a saved form no longer follows the configuration: %s", w.Body)
	}
}

// The Settings page shows the key that the command line asks a person to compare.
func TestTheSettingsShowTheConsolesKey(t *testing.T) {
	x := site(t)
	x.API.Key = func() string { return strings.Repeat("5f", 32) }
	viewer := x.As(app.RoleViewer)
	for _, path := range []string{"/settings", "/api/v1/version"} {
		if w := x.Do("GET", path, viewer, ""); w.Code != 200 || !strings.Contains(w.Body.String(), strings.Repeat("5f", 32)) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
