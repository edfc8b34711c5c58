package secret

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// KVConfig says how a Vault or OpenBao server with a KV version 2 engine is reached. Either TokenFile or RoleID with
// SecretIDFile is required.
type KVConfig struct {
	Address      string           // https://HOST:PORT; http only on this host
	CAFile       string           // PEM of the authority that vouches for the server; "" the system's
	Namespace    string           // X-Vault-Namespace; "" none
	TokenFile    string           // file that holds a token, read at each use, so that it may be renewed beside us
	RoleID       string           // AppRole
	SecretIDFile string           // file that holds the AppRole's secret id
	AuthMount    string           // where AppRole is mounted; default "approle"
	Timeout      time.Duration    // of one request; default 10 s
	Now          func() time.Time // default time.Now
}

// Limits of what a server may answer, and of the files that hold credentials, in bytes.
const (
	maxAnswer  = 1 << 20
	maxKeyFile = 8 << 10
)

const (
	tokenMargin = 10           // percent of a token's life that are left unused
	endless     = 24 * 60 * 60 // seconds after which a token that lives for ever is replaced
	maxLife     = 1 << 30      // seconds of a token's life that are believed
)

var kvRefRE = regexp.MustCompile(`^([A-Za-z0-9_-]{1,64})/([A-Za-z0-9_][A-Za-z0-9_./-]{0,254})(?:#([A-Za-z0-9_.-]{1,64}))?$`)

// kvRef is a parsed vault:// reference.
type kvRef struct{ mount, path, field string }

func parseKVRef(ref string) (kvRef, bool) {
	m := kvRefRE.FindStringSubmatch(strings.TrimPrefix(ref, schemeVault))
	if m == nil || strings.Contains(m[2], "..") || strings.Contains(m[2], "//") || strings.HasSuffix(m[2], "/") {
		return kvRef{}, false
	}
	return kvRef{m[1], m[2], m[3]}, true
}

// KV reads secrets from a server. It is safe for concurrent use.
type KV struct {
	cfg  KVConfig
	base *url.URL
	http *http.Client

	mu      sync.Mutex // protects what follows; held over a login, so that there is one
	token   string     // of AppRole
	expires time.Time
}

// NewKV checks a configuration. It asks the server nothing yet.
func NewKV(c KVConfig) (*KV, error) {
	u, err := url.Parse(c.Address)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLocal(u.Hostname())) {
		return nil, app.Errorf(app.InvalidConfig, "bad-vault", "is not the https address of a server").At("vault.address").Do("write it as https://vault.example:8200")
	}
	if (c.TokenFile == "") == (c.RoleID == "") || (c.RoleID == "") != (c.SecretIDFile == "") {
		return nil, app.Errorf(app.InvalidConfig, "bad-vault", "nothing says how to log in, or two things do").At("vault").Do("give token_file, or role_id with secret_id_file")
	}
	if c.AuthMount == "" {
		c.AuthMount = "approle"
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	t := &http.Transport{DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			return nil, app.Errorf(app.InvalidConfig, "bad-vault", "%s holds no certificate that can be read", c.CAFile).At("vault.ca_file").Do("give a PEM file")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	// A redirect would carry the token to a host that nobody named.
	client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	u.Path = ""
	return &KV{cfg: c, base: u, http: client}, nil
}

func isLocal(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost"
}

// read gives the value of a reference. A token that the server does not take any more is replaced once.
func (k *KV) read(ctx context.Context, r kvRef) (Value, error) {
	refused := ""
	for {
		token, err := k.login(ctx, refused)
		if err != nil {
			return Value{}, err
		}
		status, body, err := k.do(ctx, http.MethodGet, "/v1/"+r.mount+"/data/"+r.path, token, nil)
		switch {
		case err != nil:
			return Value{}, err
		case status == http.StatusForbidden && refused == "" && k.cfg.RoleID != "":
			refused = token
			continue
		case status != http.StatusOK:
			return Value{}, refusal(status, "vault://"+r.mount+"/"+r.path)
		}
		return kvValue(body, r)
	}
}

// kvValue takes a value out of the answer of a KV version 2 engine.
func kvValue(body []byte, r kvRef) (Value, error) {
	wrong := func(what string) (Value, error) {
		return Value{}, app.Errorf(app.InvalidConfig, "secret-unavailable", "vault://%s/%s %s", r.mount, r.path, what).
			Do("store it as texts in a KV version 2 engine, and name a member with #FIELD where one text is wanted")
	}
	var answer struct {
		Data struct {
			Data map[string]json.RawMessage `json:"data"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Data.Data == nil {
		return wrong("holds no secret of a KV version 2 engine, or its last version was deleted")
	}
	fields := map[string]string{}
	for name, raw := range answer.Data.Data {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			if name == r.field || r.field == "" {
				return wrong(fmt.Sprintf("has a member %q that is no text", name))
			}
			continue
		}
		fields[name] = s
	}
	if r.field == "" {
		v := Fields(fields)
		return v, v.Validate()
	}
	s, there := fields[r.field]
	if !there {
		return wrong(fmt.Sprintf("has no member %q", r.field))
	}
	v := Text(s)
	return v, v.Validate()
}

// login gives the token to send, another one than the server has refused: of many readers whose token ended, one logs in.
func (k *KV) login(ctx context.Context, refused string) (string, error) {
	if k.cfg.TokenFile != "" {
		return keyFile("vault.token_file", k.cfg.TokenFile)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.token != "" && k.token != refused && k.cfg.Now().Before(k.expires) {
		return k.token, nil
	}
	id, err := keyFile("vault.secret_id_file", k.cfg.SecretIDFile)
	if err != nil {
		return "", err
	}
	in, err := json.Marshal(map[string]string{"role_id": k.cfg.RoleID, "secret_id": id})
	if err != nil {
		return "", err
	}
	asked := k.cfg.Now() // the token's life begins before its answer is here
	status, body, err := k.do(ctx, http.MethodPost, "/v1/auth/"+url.PathEscape(k.cfg.AuthMount)+"/login", "", in)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", k.noLogin(status)
	}
	var answer struct {
		Auth struct {
			Token string `json:"client_token"`
			Life  int64  `json:"lease_duration"` // seconds; 0: for ever
		} `json:"auth"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Auth.Token == "" || answer.Auth.Life < 0 {
		return "", k.noLogin(status)
	}
	life := time.Duration(min(cmp.Or(answer.Auth.Life, endless), maxLife)) * time.Second
	k.token, k.expires = answer.Auth.Token, asked.Add(life/100*(100-tokenMargin))
	return k.token, nil
}

// noLogin words a login that gave no token. Only a server that looked at the AppRole refuses it: one that is sealed, or sends
// elsewhere, says nothing of it.
func (k *KV) noLogin(status int) error {
	switch status {
	case http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return app.Errorf(app.InvalidConfig, "vault-login", "the secret server refused the AppRole (status %d)", status).At("vault.role_id").Do("check role_id and the secret id in %s", k.cfg.SecretIDFile)
	}
	return refusal(status, "the login of the AppRole")
}

// keyFile reads a credential that only its owner may read.
func keyFile(field, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", app.Errorf(app.InvalidConfig, "vault-login", "%s cannot be read", path).At(field).Do("put it there, readable by the account bcd runs as only")
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return "", app.Errorf(app.InvalidConfig, "vault-login", "others than its owner may reach %s", path).At(field).Do("run: chmod 600 %s", path)
	}
	raw, rerr := io.ReadAll(io.LimitReader(f, maxKeyFile))
	s := strings.TrimSpace(string(raw))
	if err = errors.Join(err, rerr); err != nil || s == "" || strings.ContainsAny(s, "\r\n\t ") {
		return "", app.Errorf(app.InvalidConfig, "vault-login", "%s does not hold one word", path).At(field).Do("put the credential there and nothing else")
	}
	return s, nil
}

// do sends one request. Its errors hold neither token nor body.
func (k *KV) do(ctx context.Context, method, path, token string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, k.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("X-Vault-Request", "true")
	for name, v := range map[string]string{"X-Vault-Token": token, "X-Vault-Namespace": k.cfg.Namespace} {
		if v != "" {
			r.Header.Set(name, v)
		}
	}
	res, err := k.http.Do(r)
	if err != nil {
		return 0, nil, k.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, k.unreachable(err)
	case len(raw) > maxAnswer:
		return 0, nil, app.Errorf(app.Unavailable, "vault-unreachable", "the secret server at %s answers with more than %d bytes", k.base.Host, maxAnswer).Do("check vault.address")
	}
	return res.StatusCode, raw, nil
}

// unreachable words a failed request without its URL.
func (k *KV) unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	wayOut := "check vault.address, the network and that the server is unsealed"
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		wayOut = "name the authority that signed its certificate as vault.ca_file"
	}
	return app.Errorf(app.Unavailable, "vault-unreachable", "the secret server at %s does not answer: %w", k.base.Host, err).Do("%s", wayOut).Retryable()
}

// refusal words a status of the server.
func refusal(status int, ref string) error {
	switch {
	case status == http.StatusNotFound:
		return app.Errorf(app.NotFound, "secret-unavailable", "there is no secret %s", ref).Do("write it, or correct the reference")
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return app.Errorf(app.InvalidConfig, "vault-denied", "the secret server does not let bcd read %s", ref).Do("give its token or AppRole a policy that may read it, and renew them")
	case status == http.StatusServiceUnavailable:
		return app.Errorf(app.Unavailable, "vault-sealed", "the secret server is sealed").Do("unseal it").Retryable()
	case status >= 300 && status < 400:
		return app.Errorf(app.InvalidConfig, "vault-redirect", "the secret server sends bcd to another address").At("vault.address").Do("name the active server, or one that answers for it")
	}
	return app.Errorf(app.Unavailable, "vault-unreachable", "the secret server answers %s with status %d", ref, status).Do("look at its log").Retryable()
}
