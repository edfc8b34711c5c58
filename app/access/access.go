package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// How long a browser session lives.
const (
	SessionIdle     = 12 * time.Hour
	SessionAbsolute = 7 * 24 * time.Hour
	seenEvery       = time.Minute // Seen is written at most this often
)

// TokenPrefix marks API tokens, so that scanners find a leaked one.
const TokenPrefix = "bcd_"

// keySetup is the setting that holds the hex SHA-256 of the setup code.
const keySetup = "access.setup-code-sha256"

var userRE = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,31}$`)

// Config is what a Service needs.
type Config struct {
	Store    app.AccessStore                        // required
	Settings app.SettingStore                       // required
	Audit    func(ctx context.Context, e app.Event) // called for logins and changes; may be nil
	Now      func() time.Time                       // default time.Now
	Params   Params                                 // of argon2id; zero is the default
}

// Service knows users, sessions and tokens. It is safe for concurrent use.
type Service struct {
	store    app.AccessStore
	settings app.SettingStore
	audit    func(context.Context, app.Event)
	now      func() time.Time
	hasher   *hasher
	limit    *limiter
	setup    sync.Mutex // one setup at a time: the second must find the first's user
	admins   sync.Mutex // held over changes that must leave an administrator
}

// Login is a fresh browser session. Cookie is secret and shown once.
type Login struct {
	Cookie   string
	Expires  time.Time
	Identity *Identity
}

// New makes a service.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Audit == nil {
		c.Audit = func(context.Context, app.Event) {}
	}
	return &Service{store: c.Store, settings: c.Settings, audit: c.Audit, now: c.Now, hasher: newHasher(c.Params), limit: newLimiter(c.Now)}
}

// NeedsSetup reports whether no user exists yet.
func (s *Service) NeedsSetup(ctx context.Context) (bool, error) {
	n, err := s.store.CountUsers(ctx)
	return n == 0, err
}

// NewSetupCode makes the code that lets its reader create the first administrator, replacing an earlier one. It gives ""
// when users exist. The caller shows it on the terminal and nowhere else.
func (s *Service) NewSetupCode(ctx context.Context) (string, error) {
	if need, err := s.NeedsSetup(ctx); err != nil || !need {
		return "", err
	}
	var b [10]byte
	_, _ = rand.Read(b[:])
	raw := base32.StdEncoding.EncodeToString(b[:])
	if err := s.settings.SetSetting(ctx, keySetup, digest(raw)); err != nil {
		return "", fmt.Errorf("storing the setup code: %w", err)
	}
	return raw[0:4] + "-" + raw[4:8] + "-" + raw[8:12] + "-" + raw[12:16], nil
}

// Setup creates the first administrator and logs them in. The code works once.
func (s *Service) Setup(ctx context.Context, code, name, password, remote string) (*Login, error) {
	s.setup.Lock()
	defer s.setup.Unlock()
	if need, err := s.NeedsSetup(ctx); err != nil {
		return nil, err
	} else if !need {
		return nil, app.Errorf(app.Conflict, "already-set-up", "this appliance is set up already").Do("log in")
	}
	if err := s.limit.begin("\x00setup", remote); err != nil {
		return nil, err
	}
	want, err := s.settings.Setting(ctx, keySetup)
	if err != nil {
		return nil, err
	}
	raw := strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(code))
	if want == "" || subtle.ConstantTimeCompare([]byte(digest(raw)), []byte(want)) != 1 {
		return nil, app.Errorf(app.Forbidden, "setup-code-wrong", "the setup code is wrong").At("code").
			Do("copy the code that bcd printed on its terminal at the last start")
	}
	u, err := s.CreateUser(ctx, name, name, password, app.RoleAdmin)
	if err != nil {
		return nil, err
	}
	s.limit.forget("\x00setup", remote)
	if err := s.settings.SetSetting(ctx, keySetup, ""); err != nil {
		return nil, fmt.Errorf("spending the setup code: %w", err)
	}
	s.tell(ctx, "user.setup", "info", u.Name, "created the first administrator from %s", network(remote))
	return s.begin(ctx, u)
}

// Login checks a name and a password and opens a session.
func (s *Service) Login(ctx context.Context, name, password, remote string) (*Login, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	if len(name) > 64 || len(password) > MaxPassword {
		return nil, refused()
	}
	if err := s.limit.begin(name, remote); err != nil {
		return nil, err
	}
	u, err := s.store.User(ctx, name)
	if err != nil && app.CodeOf(err) != app.NotFound {
		return nil, err
	}
	hash := ""
	if u != nil && u.Name == name {
		hash = u.Hash
	}
	ok, err := s.hasher.verify(ctx, hash, password)
	if err != nil {
		return nil, err
	}
	if !ok || u.Disabled {
		s.tell(ctx, "user.login-failed", "warn", "", "a login as %q from %s was refused", name, network(remote))
		return nil, refused()
	}
	s.limit.forget(name, remote)
	s.tell(ctx, "user.login", "info", u.Name, "logged in from %s", network(remote))
	return s.begin(ctx, u)
}

func refused() error {
	return app.Errorf(app.Unauthenticated, "login-refused", "the name or the password is wrong").
		Do("try again, or have it reset with \"bcd reset-password\" on the appliance")
}

func (s *Service) begin(ctx context.Context, u *app.User) (*Login, error) {
	cookie, now := secretText(), s.now().UTC()
	sess := &app.Session{ID: digest(cookie), UserID: u.ID, Created: now, Seen: now, Expires: now.Add(SessionAbsolute)}
	if err := s.store.PutSession(ctx, sess); err != nil {
		return nil, fmt.Errorf("storing the session: %w", err)
	}
	u, err := s.store.UpdateUser(ctx, u.ID, func(u *app.User) error { u.LastSeen = now; return nil })
	if err != nil {
		return nil, err
	}
	who := &Identity{User: *u, Permissions: PermissionsOf(u.Role), SessionID: sess.ID}
	return &Login{Cookie: cookie, Expires: sess.Expires, Identity: who}, nil
}

// BySession finds who a cookie belongs to. A session idle or old for too long, or of a disabled user, is Unauthenticated.
func (s *Service) BySession(ctx context.Context, cookie string) (*Identity, error) {
	out := app.Errorf(app.Unauthenticated, "not-logged-in", "you are not logged in, or the session has ended").Do("log in")
	if len(cookie) != 43 {
		return nil, out
	}
	who, sess, err := s.session(ctx, digest(cookie), out)
	if err != nil {
		return nil, err
	}
	if now := s.now(); now.Sub(sess.Seen) >= seenEvery {
		sess.Seen = now.UTC()
		if err := unlessFull(s.store.PutSession(ctx, sess)); err != nil {
			return nil, fmt.Errorf("renewing the session: %w", err)
		}
	}
	return who, nil
}

// unlessFull lets a mark that cannot be written down go: who has a login must be able to look at an appliance whose disk is
// full, and to make room.
func unlessFull(err error) error {
	if app.CodeOf(err) == app.StorageFull {
		return nil
	}
	return err
}

// session finds a live session by its id, without renewing it; one that has ended is removed and gives otherwise.
func (s *Service) session(ctx context.Context, id string, otherwise error) (*Identity, *app.Session, error) {
	sess, err := s.store.Session(ctx, id)
	if app.CodeOf(err) == app.NotFound {
		return nil, nil, otherwise
	} else if err != nil {
		return nil, nil, err
	}
	if now := s.now(); !now.Before(sess.Expires) || now.Sub(sess.Seen) >= SessionIdle {
		return nil, nil, firstOf(unlessFull(s.store.DeleteSession(ctx, sess.ID)), otherwise)
	}
	u, err := s.active(ctx, sess.UserID, otherwise)
	if err != nil {
		return nil, nil, err
	}
	return &Identity{User: *u, Permissions: PermissionsOf(u.Role), SessionID: sess.ID}, sess, nil
}

// Still looks at an identity once more, for requests that last: what they may do now, or Unauthenticated when the session
// or the token has ended since. Watching does not renew a session.
func (s *Service) Still(ctx context.Context, who *Identity) (*Identity, error) {
	out := app.Errorf(app.Unauthenticated, "not-logged-in", "the session has ended").Do("log in")
	if who.Token == nil {
		fresh, _, err := s.session(ctx, who.SessionID, out)
		return fresh, err
	}
	return s.token(ctx, who.Token.Hash, out)
}

// ByToken finds who an API token acts for, with the token's permissions as far as the owner still holds them.
func (s *Service) ByToken(ctx context.Context, token string) (*Identity, error) {
	out := app.Errorf(app.Unauthenticated, "token-invalid", "the API token is not valid, or has expired").
		Do("make a new one under Access, or with \"bcd token create\"")
	if len(token) != len(TokenPrefix)+43 || !strings.HasPrefix(token, TokenPrefix) {
		return nil, out
	}
	who, err := s.token(ctx, digest(token), out)
	if err != nil {
		return nil, err
	}
	if now := s.now(); now.Sub(who.Token.LastUsed) >= seenEvery {
		if err := unlessFull(s.store.TouchToken(ctx, who.Token.ID, now.UTC())); err != nil {
			return nil, fmt.Errorf("noting the token's use: %w", err)
		}
	}
	return who, nil
}

// token finds who a token's digest acts for; otherwise when it has ended.
func (s *Service) token(ctx context.Context, hash string, otherwise error) (*Identity, error) {
	t, err := s.store.TokenByHash(ctx, hash)
	if app.CodeOf(err) == app.NotFound {
		return nil, otherwise
	} else if err != nil {
		return nil, err
	}
	if !s.now().Before(t.Expires) {
		return nil, otherwise
	}
	u, err := s.active(ctx, t.UserID, otherwise)
	if err != nil {
		return nil, err
	}
	return &Identity{User: *u, Permissions: intersect(PermissionsOf(u.Role), t.Permissions), Token: t}, nil
}

// active is the user of an id, or otherwise when they are gone or disabled.
func (s *Service) active(ctx context.Context, id string, otherwise error) (*app.User, error) {
	u, err := s.store.User(ctx, id)
	switch {
	case app.CodeOf(err) == app.NotFound:
		return nil, otherwise
	case err != nil:
		return nil, err
	case u.Disabled:
		return nil, otherwise
	}
	return u, nil
}

// Logout ends a session. Ending one that is gone is no error.
func (s *Service) Logout(ctx context.Context, who *Identity) error {
	if who == nil || who.SessionID == "" {
		return nil
	}
	s.tell(ctx, "user.logout", "info", who.Actor(), "logged out")
	err := s.store.DeleteSession(ctx, who.SessionID)
	if app.CodeOf(err) == app.NotFound {
		return nil
	}
	return err
}

func (s *Service) tell(ctx context.Context, kind, level, actor, format string, args ...any) {
	s.audit(ctx, app.Event{Kind: kind, Level: level, Actor: actor, Message: fmt.Sprintf(format, args...)})
}

// secretText is 256 random bits in 43 characters.
func secretText() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func firstOf(err, otherwise error) error {
	if err != nil && app.CodeOf(err) != app.NotFound {
		return err
	}
	return otherwise
}
