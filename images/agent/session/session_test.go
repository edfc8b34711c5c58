package session_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func bootData() agentv1.BootData {
	return agentv1.BootData{
		MachineID: "m1", WorkflowID: "w1", SiteURLs: []string{"https://192.0.2.1:8443", "https://[2001:db8::1]:8443"},
		BootURLs: []string{"http://192.0.2.1:8080"}, AgentPin: strings.Repeat("ab", 32), Token: "t", BootMAC: "00-00-5E-00-53-01",
		CommandKey: base64.StdEncoding.EncodeToString(signer.Public().(ed25519.PublicKey)),
	}
}

func TestParseBootData(t *testing.T) {
	tests := []struct {
		name   string
		change func(*agentv1.BootData)
		want   string // in the message; "" accepted
	}{
		{"good", func(*agentv1.BootData) {}, ""},
		{"no pin", func(d *agentv1.BootData) { d.AgentPin = "" }, "agentPin"},
		{"no key", func(d *agentv1.BootData) { d.CommandKey = "AAAA" }, "commandKey"},
		{"no token", func(d *agentv1.BootData) { d.Token = "" }, "token"},
		{"no site", func(d *agentv1.BootData) { d.SiteURLs = nil }, "siteUrls"},
		{"plain http", func(d *agentv1.BootData) { d.SiteURLs = []string{"http://192.0.2.1"} }, "not an https URL"},
		{"host name", func(d *agentv1.BootData) { d.SiteURLs = []string{"https://bcd.example"} }, "names a host"},
		{"bad MAC", func(d *agentv1.BootData) { d.BootMAC = "ff:ff:ff:ff:ff:ff" }, "bootMac"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := bootData()
			tt.change(&d)
			b, _ := json.Marshal(d)
			got, err := session.ParseBootData(b)
			if tt.want == "" {
				if err != nil || got.BootMAC != "00:00:5e:00:53:01" {
					t.Fatalf("%+v %v", got, err)
				}
				return
			}
			if e, ok := app.AsError(err); !ok || e.Reason != "boot-data-unusable" || !strings.Contains(e.Message, tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzParseBootData(f *testing.F) {
	b, _ := json.Marshal(bootData())
	f.Add(b)
	f.Add([]byte(`{"siteUrls":["https://"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := session.ParseBootData(b)
		if err == nil && (len(d.SiteURLs) == 0 || d.Token == "" || len(d.AgentPin) != 64) {
			t.Errorf("accepted %+v", d)
		}
	})
}

func TestStateFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bcd", "session.json")
	if found, err := session.ReadFile(path, new(int)); found || err != nil {
		t.Fatalf("absent file: %v %v", found, err)
	}
	if err := session.WriteFile(path, 7); err != nil {
		t.Fatal(err)
	}
	var got int
	if found, err := session.ReadFile(path, &got); !found || err != nil || got != 7 {
		t.Fatalf("%d %v %v", got, found, err)
	}
	st, _ := os.Stat(path)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("%d files left", len(left))
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o666, 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := session.ReadFile(path, &got); app.CodeOf(err) != app.Forbidden {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

// server answers with status and body, and gives a client that pins it.
func server(t *testing.T, h http.HandlerFunc) (*session.Client, *agentv1.BootData) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	sum := sha256.Sum256(srv.Certificate().RawSubjectPublicKeyInfo)
	d := bootData()
	d.SiteURLs, d.AgentPin = []string{srv.URL}, hex.EncodeToString(sum[:])
	c, err := session.NewClient(&d, session.NewClock(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, &d
}

func TestPin(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"sessionId":"s"}`)) }
	c, d := server(t, answer)
	if _, err := c.Session(context.Background(), agentv1.SessionRequest{}); err != nil {
		t.Errorf("right pin: %v", err)
	}
	wrong := *d
	wrong.AgentPin = strings.Repeat("00", 32)
	c2, err := session.NewClient(&wrong, session.NewClock(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c2.Session(context.Background(), agentv1.SessionRequest{Token: "secret"})
	if e, ok := app.AsError(err); !ok || e.Reason != "pin-mismatch" || session.Final(err) {
		t.Errorf("wrong pin: %v", err)
	}
	if _, err := session.TLSConfig(""); err == nil {
		t.Error("no pin was accepted")
	}
}

func TestAnswers(t *testing.T) {
	tests := []struct {
		status int
		body   string
		reason string
		final  bool
	}{
		{401, `{"error":{"code":"UNAUTHENTICATED","reason":"session-unknown","message":"m"}}`, "session-unknown", true},
		{409, `{"code":"CONFLICT","reason":"boot-token-reused","message":"m"}`, "boot-token-reused", true},
		{500, `{"error":{"code":"INTERNAL","message":"id 1"}}`, "", false},
		{400, `{"error":{"code":"INVALID_INPUT","reason":"malformed-request","message":"cut off","retryable":true}}`, "malformed-request", false},
		{503, `<html>`, "site-refused", false},
		{302, ``, "site-refused", false},
		{404, `nothing`, "site-refused", true},
		{200, `not json`, session.ReasonBadAnswer, false},
		{200, `{"sessionId":"` + strings.Repeat("x", 3<<20) + `"}`, session.ReasonBadAnswer, false},
	}
	for _, tt := range tests {
		c, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://192.0.2.9/")
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		})
		_, err := c.Session(context.Background(), agentv1.SessionRequest{})
		if e, ok := app.AsError(err); !ok || e.Reason != tt.reason || session.Final(err) != tt.final {
			t.Errorf("%d %.40q: %v, final %v", tt.status, tt.body, err, session.Final(err))
		}
	}
}

func TestOtherURLWhenOneIsDead(t *testing.T) {
	calls := 0
	_, d := server(t, func(w http.ResponseWriter, _ *http.Request) { calls++; _, _ = w.Write([]byte(`{}`)) })
	d.SiteURLs = append([]string{"https://127.0.0.1:1"}, d.SiteURLs...) // a port that is given to nobody
	c, err := session.NewClient(d, session.NewClock(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if err := c.Report(context.Background(), agentv1.PathLog, "s", agentv1.LogReport{}); err != nil {
			t.Error(err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls arrived", calls)
	}
	big := agentv1.LogReport{Lines: []string{strings.Repeat("x", agentv1.MaxBody)}}
	if err := c.Report(context.Background(), agentv1.PathLog, "s", big); app.CodeOf(err) != app.TooLarge {
		t.Errorf("oversize: %v", err)
	}
}
