package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// The forms of a reference.
const (
	schemeStore = "secret://"
	schemeEnv   = "env://"
	schemeVault = "vault://"
	tenant      = "root/"
	envPrefix   = "BCD_SECRET_"
)

var (
	nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,126}$`)
	envRE  = regexp.MustCompile(`^BCD_SECRET_[A-Z0-9_]{1,100}$`)
)

// Config is what a Vault needs.
type Config struct {
	KeyFile string                           // path of the key, made when missing
	Store   app.SecretStore                  // required
	Now     func() time.Time                 // default time.Now
	Env     func(name string) (string, bool) // default os.LookupEnv
	KV      *KV                              // opens vault:// references; nil: there is no such server
	Audit   func(Fetch)                      // told of each reference that was opened or refused; nil: nobody
}

// Fetch is one reference that somebody wanted opened.
type Fetch struct {
	Ref string
	Use Use
	Err error
}

// Vault stores and opens secrets. It is safe for concurrent use.
type Vault struct {
	path  string
	store app.SecretStore
	now   func() time.Time
	env   func(string) (string, bool)
	kv    *KV
	audit func(Fetch)

	mu   sync.RWMutex // protects keys; held for writing over a rotation
	keys *ring
}

// Open reads or makes the key file. A file that others may read is refused.
func Open(c Config) (*Vault, error) {
	keys, err := openKeyFile(c.KeyFile)
	if err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Env == nil {
		c.Env = os.LookupEnv
	}
	return &Vault{path: c.KeyFile, store: c.Store, now: c.Now, env: c.Env, kv: c.KV, audit: c.Audit, keys: keys}, nil
}

// Ref is the reference to a stored secret.
func Ref(name string) string { return schemeStore + tenant + name }

// ValidName checks the name of a stored secret.
func ValidName(name string) error {
	if !nameRE.MatchString(name) {
		return app.Invalid("name", "is not a valid secret name").
			Do("use 1 to 127 lower-case letters, digits, dots, hyphens and underscores, starting with a letter or digit")
	}
	return nil
}

// ValidRef checks the form of a reference without opening it.
func ValidRef(ref string) error {
	switch {
	case strings.HasPrefix(ref, schemeStore+tenant):
		return ValidName(strings.TrimPrefix(ref, schemeStore+tenant))
	case strings.HasPrefix(ref, schemeEnv) && envRE.MatchString(strings.TrimPrefix(ref, schemeEnv)):
		return nil
	case strings.HasPrefix(ref, schemeVault):
		if _, ok := parseKVRef(ref); ok {
			return nil
		}
	}
	// The input is not quoted: a password pasted into the wrong field must not reach a log.
	return app.Invalid("credentials", "is not a reference to a secret").
		Do("write %sNAME, %s%sNAME or %sMOUNT/PATH#FIELD", schemeStore+tenant, schemeEnv, envPrefix, schemeVault)
}

// Put seals a value under a name, replacing what was there.
func (v *Vault) Put(ctx context.Context, name string, value Value) error {
	if err := ValidName(name); err != nil {
		return err
	}
	if err := value.Validate(); err != nil {
		return err
	}
	plain, err := value.plain()
	if err != nil {
		return fmt.Errorf("encoding secret %q: %w", name, err)
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	now := v.now().UTC()
	row := &app.SealedSecret{Name: name, Sealed: v.keys.seal(name, plain), Created: now, Updated: now}
	if old, err := v.store.Secret(ctx, name); err == nil {
		row.Created = old.Created
	}
	return v.store.PutSecret(ctx, row)
}

// Get opens a stored secret by name.
func (v *Vault) Get(ctx context.Context, name string) (Value, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	row, err := v.store.Secret(ctx, name)
	if err != nil {
		return Value{}, err
	}
	plain, err := v.keys.open(name, row.Sealed)
	if err != nil {
		return Value{}, err
	}
	return decode(plain)
}

// Resolve opens what a reference names, for the use that the context carries.
func (v *Vault) Resolve(ctx context.Context, ref string) (Value, error) {
	if err := ValidRef(ref); err != nil {
		return Value{}, err
	}
	value, err := v.resolve(ctx, ref)
	if v.audit != nil {
		v.audit(Fetch{ref, useOf(ctx), err})
	}
	return value, err
}

func (v *Vault) resolve(ctx context.Context, ref string) (Value, error) {
	if r, ok := parseKVRef(ref); ok && strings.HasPrefix(ref, schemeVault) {
		if v.kv == nil {
			return Value{}, app.Errorf(app.InvalidConfig, "vault-not-configured", "no server is configured for %s references", schemeVault).Do("add a [vault] section to config.toml and restart bcd")
		}
		return v.kv.read(ctx, r)
	}
	if name, ok := strings.CutPrefix(ref, schemeStore+tenant); ok {
		return v.Get(ctx, name)
	}
	name := strings.TrimPrefix(ref, schemeEnv)
	s, ok := v.env(name)
	if !ok || s == "" {
		return Value{}, app.Errorf(app.NotFound, "secret-unavailable", "the environment variable %s is not set", name).
			Do("set it in the service's environment and restart bcd")
	}
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		if val, err := decode([]byte(s)); err == nil {
			return val, nil
		}
	}
	return Text(s), nil
}

// List names the stored secrets, without values.
func (v *Vault) List(ctx context.Context) ([]app.SealedSecret, error) {
	return v.store.ListSecrets(ctx)
}

// Delete removes a stored secret.
func (v *Vault) Delete(ctx context.Context, name string) error {
	return v.store.DeleteSecret(ctx, name)
}

// Rotate makes a new key, seals every secret under it, and drops the old keys. A crash on the way leaves both keys in
// the file, so every secret still opens; the next Rotate finishes the work.
func (v *Vault) Rotate(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	both := &ring{keys: append([][]byte{freshKey()}, v.keys.keys...)}
	if err := both.save(v.path); err != nil {
		return err
	}
	v.keys = both
	rows, err := v.store.ListSecrets(ctx)
	if err != nil {
		return fmt.Errorf("listing secrets: %w", err)
	}
	for _, r := range rows {
		if err := v.reseal(ctx, r.Name); err != nil {
			return fmt.Errorf("resealing secret %q: %w", r.Name, err)
		}
	}
	only := &ring{keys: both.keys[:1]}
	if err := only.save(v.path); err != nil {
		return err
	}
	v.keys = only
	return nil
}

func (v *Vault) reseal(ctx context.Context, name string) error {
	row, err := v.store.Secret(ctx, name)
	if err != nil {
		return err
	}
	plain, err := v.keys.open(name, row.Sealed)
	if err != nil {
		return err
	}
	row.Sealed = v.keys.seal(name, plain)
	return v.store.PutSecret(ctx, row)
}

func decode(plain []byte) (Value, error) {
	var v Value
	err := json.Unmarshal(plain, &v)
	return v, err
}
