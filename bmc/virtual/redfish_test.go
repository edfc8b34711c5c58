package virtual

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http lingers half a second on a connection whose body was too large.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func config(t *testing.T) Config {
	t.Helper()
	return Config{
		Name: "node-1", UUID: "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5", Serial: "SN0001", Password: "correct horse",
		NICs:       []NIC{{MAC: "00:00:5e:00:53:01", Netdev: "user"}, {MAC: "00:00:5e:00:53:02", Netdev: "user"}},
		Hypervisor: &Fake{},
	}
}

// start runs a machine until the test ends.
func start(t *testing.T, cfg Config) *Machine {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Run(t.Context()) }()
	t.Cleanup(func() {
		m.Close()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return m
}

// bmcClient is a minimal Redfish client for one BMC.
type bmcClient struct {
	http *http.Client
	url  string
	user, password,
	token string
}

func client(t *testing.T, m *Machine) *bmcClient {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // the pin below stands in for the chain
		VerifyConnection: func(s tls.ConnectionState) error {
			if got := spki(tls.Certificate{Certificate: [][]byte{s.PeerCertificates[0].Raw}}); got != m.SPKI() {
				t.Errorf("SPKI %s, want %s", got, m.SPKI())
			}
			return nil
		},
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &bmcClient{http: &http.Client{Transport: tr, Timeout: patience}, url: m.URL(), user: m.cfg.Username, password: m.cfg.Password}
}

// do sends a request; header is "Name: value" lines.
func (c *bmcClient) do(t *testing.T, method, path, body string, header ...string) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if c.token != "" {
		req.Header.Set("X-Auth-Token", c.token)
	} else if c.user != "" {
		req.SetBasicAuth(c.user, c.password)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if json.Unmarshal(b, &out) != nil && len(bytes.TrimSpace(b)) > 0 && !strings.HasPrefix(string(b), "<?xml") {
		t.Errorf("%s %s: %s is not JSON", method, path, b)
	}
	return res, out
}

func (c *bmcClient) want(t *testing.T, status int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	res, out := c.do(t, method, path, body, header...)
	if res.StatusCode != status {
		t.Fatalf("%s %s %s: status %d, want %d: %v", method, path, body, res.StatusCode, status, out)
	}
	return out
}

func (c *bmcClient) system(t *testing.T) map[string]any {
	t.Helper()
	return c.want(t, 200, "GET", systemPath, "")
}

func (c *bmcClient) patch(t *testing.T, body string, status int) {
	t.Helper()
	c.want(t, status, "PATCH", systemPath, body)
}

func (c *bmcClient) reset(t *testing.T, kind string, status int) {
	t.Helper()
	c.want(t, status, "POST", resetPath, `{"ResetType":"`+kind+`"}`)
}

// messageID gives the MessageId of a Redfish error, without its registry.
func messageID(t *testing.T, body map[string]any) string {
	t.Helper()
	e, _ := body["error"].(map[string]any)
	infos, _ := e["@Message.ExtendedInfo"].([]any)
	if len(infos) == 0 {
		t.Fatalf("no ExtendedInfo in %v", body)
	}
	id, _ := infos[0].(map[string]any)["MessageId"].(string)
	return strings.TrimPrefix(id, registry)
}

// TestTreeIsWhole follows every link from the root and finds a resource that names itself there.
func TestTreeIsWhole(t *testing.T) {
	c := client(t, start(t, config(t)))
	seen := map[string]bool{}
	var walk func(path string)
	walk = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		body := c.want(t, 200, "GET", path, "")
		if body["@odata.id"] != path {
			t.Errorf("%s says it is %v", path, body["@odata.id"])
		}
		var find func(v any)
		find = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, e := range v {
					find(e)
				}
			case map[string]any:
				if id, ok := v["@odata.id"].(string); ok {
					walk(id)
				}
				for _, e := range v {
					find(e)
				}
			}
		}
		find(body)
	}
	walk(root)
	for _, p := range []string{systemPath, chassisPath, managerPath, nicsPath + "/1", nicsPath + "/2", sessionsPath} {
		if !seen[p] {
			t.Errorf("%s cannot be reached from the root", p)
		}
	}
	if sys := c.system(t); sys["UUID"] != "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5" || sys["SerialNumber"] != "SN0001" || sys["PowerState"] != "Off" {
		t.Errorf("system: %v", sys)
	}
	if nic := c.want(t, 200, "GET", nicsPath+"/2/", ""); nic["MACAddress"] != "00:00:5e:00:53:02" {
		t.Errorf("second NIC: %v", nic)
	}
}

func TestWhatNeedsALogin(t *testing.T) {
	c := client(t, start(t, config(t)))
	c.user = ""
	for _, path := range []string{"/redfish", root, root + "/", root + "/odata", root + "/$metadata"} {
		c.want(t, 200, "GET", path, "")
	}
	for _, path := range []string{systemPath, root + "/Systems", sessionsRoot, sessionsPath, root + "/nothing"} {
		if id := messageID(t, c.want(t, 401, "GET", path, "")); id != "NoValidSession" {
			t.Errorf("%s: %s", path, id)
		}
	}
	c.user, c.password = "admin", "wrong"
	c.want(t, 401, "GET", systemPath, "")
	c.want(t, 401, "POST", resetPath, `{"ResetType":"On"}`)
}

func TestSessions(t *testing.T) {
	m, c := (*Machine)(nil), (*bmcClient)(nil)
	m = start(t, config(t))
	c = client(t, m)
	c.user = ""
	c.want(t, 401, "POST", sessionsPath, `{"UserName":"admin","Password":"wrong"}`)
	c.want(t, 400, "POST", sessionsPath, `{"UserName":"admin"`)

	var first string
	for i := range maxSessions {
		res, body := c.do(t, "POST", sessionsPath, `{"UserName":"admin","Password":"correct horse"}`)
		if res.StatusCode != 201 || res.Header.Get("X-Auth-Token") == "" || res.Header.Get("Location") != body["@odata.id"] {
			t.Fatalf("session %d: %d %v %v", i, res.StatusCode, res.Header, body)
		}
		if i == 0 {
			first, c.token = res.Header.Get("Location"), res.Header.Get("X-Auth-Token")
		}
	}
	res, body := c.do(t, "POST", sessionsPath, `{"UserName":"admin","Password":"correct horse"}`)
	if res.StatusCode != 503 || messageID(t, body) != "SessionLimitExceeded" || res.Header.Get("Retry-After") == "" {
		t.Errorf("one session too many: %d %v", res.StatusCode, body)
	}
	if n := m.Sessions(); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
	c.system(t)
	c.want(t, 200, "GET", first, "")
	c.want(t, 204, "DELETE", first, "")
	c.want(t, 401, "GET", systemPath, "")
}

func TestSessionsExpire(t *testing.T) {
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newSessions(func() time.Time { return at })
	e, _ := s.open("admin")
	at = at.Add(sessionTimeout - time.Second)
	if !s.use(e.token) {
		t.Fatal("expired before its time")
	}
	at = at.Add(sessionTimeout - time.Second)
	if !s.use(e.token) {
		t.Fatal("use does not keep a session alive")
	}
	at = at.Add(sessionTimeout + time.Second)
	if s.use(e.token) || len(s.list()) != 0 {
		t.Fatal("an unused session lives on")
	}
}

func TestBootOverride(t *testing.T) {
	boot := func(c *bmcClient, t *testing.T) [3]any {
		b := c.system(t)["Boot"].(map[string]any)
		return [3]any{b["BootSourceOverrideTarget"], b["BootSourceOverrideEnabled"], b["BootSourceOverrideMode"]}
	}
	before := [3]any{"Hdd", "Continuous", "UEFI"}
	for _, tc := range []struct {
		name, body string
		status     int
		message    string
		want       [3]any
	}{
		{"once", `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}}`, 200, "", [3]any{"Pxe", "Once", "UEFI"}},
		{"whole", `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Continuous","BootSourceOverrideMode":"Legacy"}}`, 200, "", [3]any{"Pxe", "Continuous", "Legacy"}},
		{"disabled", `{"Boot":{"BootSourceOverrideEnabled":"Disabled"}}`, 200, "", [3]any{"None", "Disabled", "UEFI"}},
		{"target none", `{"Boot":{"BootSourceOverrideTarget":"None"}}`, 200, "", [3]any{"None", "Disabled", "UEFI"}},
		{"nothing", `{}`, 200, "", before},
		{"unknown target", `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Floppy"}}`, 400, "PropertyValueNotInList", before},
		{"unknown mode", `{"Boot":{"BootSourceOverrideMode":"uefi"}}`, 400, "PropertyValueNotInList", before},
		{"number", `{"Boot":{"BootSourceOverrideMode":1}}`, 400, "PropertyValueTypeError", before},
		{"null", `{"Boot":{"BootSourceOverrideMode":null}}`, 400, "PropertyValueTypeError", before},
		{"boot is text", `{"Boot":"Pxe"}`, 400, "PropertyValueTypeError", before},
		{"unknown member", `{"Boot":{"BootNext":"1"}}`, 400, "PropertyUnknown", before},
		{"read-only", `{"PowerState":"On"}`, 400, "PropertyNotWritable", before},
		{"unknown property", `{"Nonsense":1,"Boot":{"BootSourceOverrideTarget":"Pxe"}}`, 400, "PropertyUnknown", before},
		{"not JSON", `{"Boot":`, 400, "MalformedJSON", before},
		{"two documents", `{} {}`, 400, "MalformedJSON", before},
		{"null document with more", `[]`, 400, "MalformedJSON", before},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := client(t, start(t, config(t)))
			c.patch(t, `{"Boot":{"BootSourceOverrideTarget":"Hdd","BootSourceOverrideEnabled":"Continuous","BootSourceOverrideMode":"UEFI"}}`, 200)
			body := c.want(t, tc.status, "PATCH", systemPath, tc.body)
			if tc.message != "" && messageID(t, body) != tc.message {
				t.Errorf("message %s, want %s", messageID(t, body), tc.message)
			}
			if got := boot(c, t); got != tc.want {
				t.Errorf("boot %v, want %v", got, tc.want)
			}
		})
	}
}

func TestETag(t *testing.T) {
	c := client(t, start(t, config(t)))
	const change = `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Continuous"}}`
	res, body := c.do(t, "GET", systemPath, "")
	tag := res.Header.Get("ETag")
	if tag == "" || body["@odata.etag"] != tag {
		t.Fatalf("ETag %q, @odata.etag %v", tag, body["@odata.etag"])
	}
	c.want(t, 412, "PATCH", systemPath, change, `If-Match: "another"`)
	c.want(t, 200, "PATCH", systemPath, change, "If-Match: "+tag)
	if id := messageID(t, c.want(t, 412, "PATCH", systemPath, change, "If-Match: "+tag)); id != "PreconditionFailed" {
		t.Error(id)
	}
	res, _ = c.do(t, "GET", systemPath, "")
	c.want(t, 200, "PATCH", systemPath, `{"Boot":{"BootSourceOverrideEnabled":"Disabled"}}`, "If-Match: "+strings.TrimPrefix(res.Header.Get("ETag"), "W/"))
	c.want(t, 200, "PATCH", systemPath, change, "If-Match: *")
}

func TestRefusals(t *testing.T) {
	c := client(t, start(t, config(t)))
	for _, tc := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"GET", root + "/Systems/2", "", 404, "ResourceMissingAtURI"},
		{"GET", nicsPath + "/3", "", 404, "ResourceMissingAtURI"},
		{"DELETE", sessionsPath + "/none", "", 404, "ResourceMissingAtURI"},
		{"DELETE", systemPath, "", 405, "OperationNotAllowed"},
		{"GET", resetPath, "", 405, "OperationNotAllowed"},
		{"POST", resetPath, `{}`, 400, "ActionParameterMissing"},
		{"POST", resetPath, `{"ResetType":"Explode"}`, 400, "ActionParameterValueNotInList"},
		{"POST", resetPath, `{"ResetType":7}`, 400, "ActionParameterValueNotInList"},
		{"POST", resetPath, `{"ResetType":"GracefulShutdown"}`, 409, "ResourceInStandby"},
		{"POST", resetPath, `{"ResetType":"PowerCycle"}`, 409, "ResourceInStandby"},
		{"POST", resetPath, `{"pad":"` + strings.Repeat("x", maxBody) + `"}`, 400, "MalformedJSON"},
	} {
		if id := messageID(t, c.want(t, tc.status, tc.method, tc.path, tc.body)); id != tc.message {
			t.Errorf("%s %s: %s, want %s", tc.method, tc.path, id, tc.message)
		}
	}
}

func TestCertificateIsKept(t *testing.T) {
	cfg := config(t)
	cfg.Dir = t.TempDir()
	var pins []string
	for range 2 {
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		pins = append(pins, m.SPKI())
		m.Close()
		m.Close()
	}
	if pins[0] != pins[1] || len(pins[0]) != 64 {
		t.Errorf("pins %v", pins)
	}
}

func FuzzPatch(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `{"Boot":{"BootSourceOverrideTarget":"Pxe"}}`, `{"Boot":null}`, `{"Boot":{"BootSourceOverrideMode":["UEFI"]}}`, `{"@odata.id":1}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var body map[string]json.RawMessage
		if json.Unmarshal([]byte(s), &body) != nil {
			return
		}
		old := Override{NoTarget, Disabled, Legacy}
		got, bad := old.patched(body)
		if !got.valid() || (bad != nil && got != old) {
			t.Errorf("%s gives %+v, %v", s, got, bad)
		}
	})
}
