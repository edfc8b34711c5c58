package secret_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
)

// vaultServer speaks as much of Vault's HTTP API as a reader of KV version 2 sees
// (developer.hashicorp.com/vault/api-docs: secret/kv/kv-v2, auth/approle). It stands in for a server of Vault or OpenBao, of which
// neither Debian nor the Go module registry, as a build can use it, has one.
type vaultServer struct {
	*httptest.Server
	mu     sync.Mutex
	data   map[string]string // path below /v1/ → "data" member of the answer
	tokens map[string]bool   // that are taken
	logins int
	life   int // lease_duration of the tokens it gives, in seconds
	asked  []*http.Request
	status int // instead of an answer; 0: none
	delay  chan struct{}
	came   chan struct{} // told of each request; nil: nobody
}

const (
	fileToken = "hvs.file-token"
	roleID    = "role-1"
	secretID  = "s3cret-id"
)

func newVault(t *testing.T) *vaultServer {
	t.Helper()
	v := &vaultServer{life: 3600, tokens: map[string]bool{fileToken: true}, data: map[string]string{
		"kv/data/site/bmc": `{"data":{"username":"root","password":"Pl4nted"},"metadata":{"version":2}}`,
		"kv/data/site/num": `{"data":{"port":7},"metadata":{"version":1}}`,
		"kv/data/deleted":  `{"data":null,"metadata":{"deletion_time":"2031-01-01T00:00:00Z"}}`,
	}}
	v.Server = httptest.NewTLSServer(v)
	t.Cleanup(v.Close)
	return v
}

func (v *vaultServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if v.came != nil {
		v.came <- struct{}{}
	}
	if v.delay != nil {
		select {
		case <-v.delay:
		case <-r.Context().Done():
			return
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, r)
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	switch {
	case v.status == http.StatusTemporaryRedirect:
		http.Redirect(w, r, "https://elsewhere.example/", v.status)
	case v.status != 0:
		http.Error(w, `{"errors":["no"]}`, v.status)
	case path == "auth/approle/login" && r.Method == http.MethodPost:
		var in map[string]string
		if json.NewDecoder(r.Body).Decode(&in) != nil || in["role_id"] != roleID || in["secret_id"] != secretID {
			http.Error(w, `{"errors":["invalid role or secret ID"]}`, http.StatusBadRequest)
			return
		}
		v.logins++
		token := "hvs.role-" + string(rune('0'+v.logins))
		v.tokens[token] = true
		_ = json.NewEncoder(w).Encode(map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": v.life}})
	case !v.tokens[r.Header.Get("X-Vault-Token")]:
		http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
	case v.data[path] == "":
		http.Error(w, `{"errors":[]}`, http.StatusNotFound)
	default:
		_, _ = w.Write([]byte(`{"data":` + v.data[path] + `}`))
	}
}

// file writes a credential that only its owner may read.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// reader is a vault over the server, with what the test changes of its configuration.
func reader(t *testing.T, v *vaultServer, change func(*secret.KVConfig)) (*secret.Vault, *[]secret.Fetch) {
	t.Helper()
	ca := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate().Raw})))
	c := secret.KVConfig{Address: v.URL, CAFile: ca, TokenFile: file(t, fileToken)}
	if change != nil {
		change(&c)
	}
	kv, err := secret.NewKV(c)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var fetched []secret.Fetch
	x, err := secret.Open(secret.Config{KeyFile: filepath.Join(t.TempDir(), "key"), KV: kv, Audit: func(f secret.Fetch) {
		mu.Lock()
		defer mu.Unlock()
		fetched = append(fetched, f)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return x, &fetched
}

// byRole logs in by AppRole instead of a token.
func byRole(t *testing.T) func(*secret.KVConfig) {
	id := file(t, secretID)
	return func(c *secret.KVConfig) { c.TokenFile, c.RoleID, c.SecretIDFile = "", roleID, id }
}

func TestSecretsInAVault(t *testing.T) {
	srv := newVault(t)
	v, fetched := reader(t, srv, func(c *secret.KVConfig) { c.Namespace = "team" })
	ctx := secret.For(t.Context(), secret.Use{MachineID: "m-1", WorkflowID: "wf-1", StepID: "profile-0"})
	login, err := v.Resolve(ctx, "vault://kv/site/bmc")
	if err != nil {
		t.Fatal(err)
	}
	user, _ := login.Field("username")
	password, _ := login.Field("password")
	if user != "root" || password != "Pl4nted" {
		t.Errorf("%q %q", user, password)
	}
	one, err := v.Resolve(ctx, "vault://kv/site/bmc#password")
	if text, _ := one.Text(); err != nil || text != "Pl4nted" {
		t.Errorf("%q %v", text, err)
	}
	if r := srv.asked[0]; r.URL.Path != "/v1/kv/data/site/bmc" || r.Header.Get("X-Vault-Namespace") != "team" || r.Header.Get("X-Vault-Request") != "true" {
		t.Errorf("asked %s %v", r.URL, r.Header)
	}
	if f := *fetched; len(f) != 2 || f[0].Ref != "vault://kv/site/bmc" || f[0].Use.MachineID != "m-1" || f[0].Use.WorkflowID != "wf-1" || f[0].Use.StepID != "profile-0" || f[0].Err != nil {
		t.Errorf("audit %+v", f)
	}
}

func TestWhatAVaultRefuses(t *testing.T) {
	srv := newVault(t)
	for name, c := range map[string]struct {
		ref    string
		change func(*secret.KVConfig)
		status int
		code   app.Code
		reason string
	}{
		"missing":          {"vault://kv/site/none", nil, 0, app.NotFound, "secret-unavailable"},
		"deleted":          {"vault://kv/deleted", nil, 0, app.InvalidConfig, "secret-unavailable"},
		"no such field":    {"vault://kv/site/bmc#token", nil, 0, app.InvalidConfig, "secret-unavailable"},
		"not a text":       {"vault://kv/site/num", nil, 0, app.InvalidConfig, "secret-unavailable"},
		"another token":    {"vault://kv/site/bmc", func(c *secret.KVConfig) { c.TokenFile = file(t, "hvs.other") }, 0, app.InvalidConfig, "vault-denied"},
		"no token":         {"vault://kv/site/bmc", func(c *secret.KVConfig) { c.TokenFile = "/nonexistent" }, 0, app.InvalidConfig, "vault-login"},
		"a token of words": {"vault://kv/site/bmc", func(c *secret.KVConfig) { c.TokenFile = file(t, "two words") }, 0, app.InvalidConfig, "vault-login"},
		"an open token":    {"vault://kv/site/bmc", func(c *secret.KVConfig) { _ = os.Chmod(c.TokenFile, 0o644) }, 0, app.InvalidConfig, "vault-login"},
		"another role":     {"vault://kv/site/bmc", func(c *secret.KVConfig) { c.TokenFile, c.RoleID, c.SecretIDFile = "", "x", file(t, secretID) }, 0, app.InvalidConfig, "vault-login"},
		"sealed, by role":  {"vault://kv/site/bmc", byRole(t), 503, app.Unavailable, "vault-sealed"},
		"standby, by role": {"vault://kv/site/bmc", byRole(t), 307, app.InvalidConfig, "vault-redirect"},
		"broken, by role":  {"vault://kv/site/bmc", byRole(t), 500, app.Unavailable, "vault-unreachable"},
		"no such mount":    {"vault://kv/site/bmc", byRole(t), 404, app.InvalidConfig, "vault-login"},
		"no token, 200":    {"vault://kv/site/bmc", byRole(t), 200, app.InvalidConfig, "vault-login"},
		"sealed":           {"vault://kv/site/bmc", nil, 503, app.Unavailable, "vault-sealed"},
		"a redirect":       {"vault://kv/site/bmc", nil, 307, app.InvalidConfig, "vault-redirect"},
		"broken":           {"vault://kv/site/bmc", nil, 500, app.Unavailable, "vault-unreachable"},
		"another CA":       {"vault://kv/site/bmc", func(c *secret.KVConfig) { c.CAFile = "" }, 0, app.Unavailable, "vault-unreachable"},
		"nobody there":     {"vault://kv/site/bmc", func(c *secret.KVConfig) { c.Address = "https://127.0.0.1:1" }, 0, app.Unavailable, "vault-unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			srv.mu.Lock()
			srv.status = c.status
			srv.mu.Unlock()
			v, fetched := reader(t, srv, c.change)
			_, err := v.Resolve(t.Context(), c.ref)
			e, ok := app.AsError(err)
			if !ok || e.Code != c.code || e.Reason != c.reason || e.WayOut == "" {
				t.Errorf("%v, want %s %s with a way out", err, c.code, c.reason)
			}
			for _, never := range []string{"hvs.", secretID, "Pl4nted"} {
				if err != nil && strings.Contains(err.Error(), never) {
					t.Errorf("the error holds a credential: %v", err)
				}
			}
			if len(*fetched) != 1 || (*fetched)[0].Err == nil {
				t.Errorf("audit %+v", *fetched)
			}
		})
	}
}

func TestAppRole(t *testing.T) {
	srv := newVault(t)
	v, _ := reader(t, srv, byRole(t))
	for range 3 {
		if _, err := v.Resolve(t.Context(), "vault://kv/site/bmc"); err != nil {
			t.Fatal(err)
		}
	}
	if srv.logins != 1 {
		t.Errorf("%d logins for three secrets", srv.logins)
	}
	srv.mu.Lock()
	srv.tokens = map[string]bool{} // revoked behind our back
	srv.mu.Unlock()
	if _, err := v.Resolve(t.Context(), "vault://kv/site/bmc"); err != nil || srv.logins != 2 {
		t.Errorf("after a revocation: %v, %d logins", err, srv.logins)
	}
}

// A token is used for nine tenths of its life, and one that lives for ever for a day.
func TestATokenThatEndsIsReplacedBefore(t *testing.T) {
	for name, c := range map[string]struct {
		life int
		kept time.Duration
	}{"an hour": {3600, 54 * time.Minute}, "for ever": {0, 21*time.Hour + 36*time.Minute}, "longer than can be counted": {1 << 60, 1 << 30 * 9 / 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			srv := newVault(t)
			srv.life = c.life
			now := time.Date(2031, 4, 5, 6, 7, 8, 0, time.UTC)
			v, _ := reader(t, srv, func(k *secret.KVConfig) {
				k.TokenFile, k.RoleID, k.SecretIDFile, k.Now = "", roleID, file(t, secretID), func() time.Time { return now }
			})
			for _, step := range []struct {
				after  time.Duration
				logins int
			}{{0, 1}, {c.kept - time.Minute, 1}, {2 * time.Minute, 2}, {time.Minute, 2}} {
				now = now.Add(step.after)
				if _, err := v.Resolve(t.Context(), "vault://kv/site/bmc"); err != nil || srv.logins != step.logins {
					t.Fatalf("at %s: %v, %d logins, want %d", now, err, srv.logins, step.logins)
				}
			}
		})
	}
}

func TestOfManyReadersOneLogsIn(t *testing.T) {
	const readers = 16
	srv := newVault(t)
	v, _ := reader(t, srv, byRole(t))
	if _, err := v.Resolve(t.Context(), "vault://kv/site/bmc"); err != nil {
		t.Fatal(err)
	}
	srv.mu.Lock()
	srv.tokens = map[string]bool{}
	srv.mu.Unlock()
	srv.delay, srv.came = make(chan struct{}), make(chan struct{}, 4*readers)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			if _, err := v.Resolve(t.Context(), "vault://kv/site/bmc"); err != nil {
				t.Error(err)
			}
		})
	}
	for range readers { // all have sent the token that ended before the first is told so
		<-srv.came
	}
	close(srv.delay)
	all.Wait()
	if srv.logins != 2 {
		t.Errorf("%d logins: the second was for all", srv.logins)
	}
}

func TestASilentVaultIsGivenUp(t *testing.T) {
	srv := newVault(t)
	srv.delay = make(chan struct{})
	defer close(srv.delay)
	v, _ := reader(t, srv, func(c *secret.KVConfig) { c.Timeout = time.Millisecond })
	_, err := v.Resolve(context.Background(), "vault://kv/site/bmc")
	if e, _ := app.AsError(err); e == nil || e.Reason != "vault-unreachable" || !e.Retry {
		t.Errorf("%v", err)
	}
}

func TestVaultConfigurations(t *testing.T) {
	for name, c := range map[string]secret.KVConfig{
		"plain HTTP to another host": {Address: "http://vault.example:8200", TokenFile: "/x"},
		"no address":                 {TokenFile: "/x"},
		"a path":                     {Address: "https://vault.example/v1", TokenFile: "/x"},
		"a login in the address":     {Address: "https://u:p@vault.example", TokenFile: "/x"},
		"no way to log in":           {Address: "https://vault.example"},
		"two ways":                   {Address: "https://vault.example", TokenFile: "/x", RoleID: "r", SecretIDFile: "/y"},
		"half an AppRole":            {Address: "https://vault.example", RoleID: "r"},
		"no authority":               {Address: "https://vault.example", TokenFile: "/x", CAFile: "/nonexistent"},
	} {
		if _, err := secret.NewKV(c); app.CodeOf(err) != app.InvalidConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := secret.NewKV(secret.KVConfig{Address: "http://127.0.0.1:8200", TokenFile: "/x"}); err != nil {
		t.Errorf("plain HTTP to this host: %v", err)
	}
	for _, ref := range []string{"vault://kv", "vault://kv/", "vault:///x", "vault://kv/a/../b", "vault://kv/a//b", "vault://kv/a#", "vault://kv/a?x=1", "vault://k v/a", "vault://kv/a/"} {
		if err := secret.ValidRef(ref); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func FuzzVaultReference(f *testing.F) {
	f.Add("vault://kv/site/bmc#password")
	f.Add("vault://kv/../sys")
	f.Fuzz(func(t *testing.T, ref string) {
		if secret.ValidRef(ref) == nil && strings.HasPrefix(ref, "vault://") && strings.Contains(ref, "..") {
			t.Errorf("%q leaves its mount", ref)
		}
	})
}
