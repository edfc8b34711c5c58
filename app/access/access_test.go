package access_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/store"
)

const password = "correct horse battery"

type bench struct {
	*access.Service
	store *store.DB
	mu    sync.Mutex
	now   time.Time
	audit []app.Event
}

func (b *bench) clock() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now }

func (b *bench) add(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); b.now = b.now.Add(d) }

func newBench(t *testing.T) *bench {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := &bench{store: db, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.Service = access.New(access.Config{Store: db, Settings: db, Now: b.clock, Params: access.Params{Memory: 64, Time: 1, Threads: 1},
		Audit: func(_ context.Context, e app.Event) { b.mu.Lock(); defer b.mu.Unlock(); b.audit = append(b.audit, e) }})
	return b
}

func (b *bench) user(t *testing.T, name string, r app.Role) {
	t.Helper()
	if _, err := b.CreateUser(t.Context(), "test", name, password, r); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) login(t *testing.T, name string) *access.Login {
	t.Helper()
	l, err := b.Login(t.Context(), name, password, "192.0.2.1:4711")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wants(t *testing.T, err error, code app.Code, reason string) {
	t.Helper()
	e, ok := app.AsError(err)
	if !ok || e.Code != code || e.Reason != reason {
		t.Errorf("error %v, want %s %s", err, code, reason)
	}
}

func TestSetupCodeWorksOnceAndOnlyBeforeTheFirstUser(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	old, err := b.NewSetupCode(ctx)
	if err != nil {
		t.Fatal(err)
	}
	code, err := b.NewSetupCode(ctx)
	if err != nil || code == old {
		t.Fatalf("code %q after %q, %v", code, old, err)
	}
	_, err = b.Setup(ctx, old, "admin", password, "192.0.2.1:1")
	wants(t, err, app.Forbidden, "setup-code-wrong")
	_, err = b.Setup(ctx, "", "admin", password, "192.0.2.1:1")
	wants(t, err, app.Forbidden, "setup-code-wrong")
	_, err = b.Setup(ctx, code, "admin", "short", "192.0.2.1:1")
	wants(t, err, app.InvalidInput, "invalid-field")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 4 {
		wg.Go(func() {
			l, err := b.Setup(ctx, strings.ToLower(code), "admin"+string(rune('a'+i)), password, "192.0.2.2:1")
			mu.Lock()
			defer mu.Unlock()
			if err == nil && l.Identity.Can(app.PermUsersWrite) {
				won++
			}
		})
	}
	wg.Wait()
	if n, _ := b.store.CountUsers(ctx); won != 1 || n != 1 {
		t.Errorf("%d setups won, %d users", won, n)
	}
	if again, err := b.NewSetupCode(ctx); again != "" || err != nil {
		t.Errorf("a code %q after setup, %v", again, err)
	}
	_, err = b.Setup(ctx, code, "eve", password, "192.0.2.1:1")
	wants(t, err, app.Conflict, "already-set-up")
}

func TestSessionEndsWhenIdleAndInAnyCase(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "alice", app.RoleOperator)
	l := b.login(t, "Alice ")
	for range 15 { // used every 11 hours it lives, until the seventh day
		b.add(11 * time.Hour)
		if _, err := b.BySession(ctx, l.Cookie); err != nil {
			t.Fatal(err)
		}
	}
	b.add(access.SessionAbsolute - 15*11*time.Hour - time.Second)
	if _, err := b.BySession(ctx, l.Cookie); err != nil {
		t.Errorf("one second before its end: %v", err)
	}
	b.add(time.Second)
	_, err := b.BySession(ctx, l.Cookie)
	wants(t, err, app.Unauthenticated, "not-logged-in")

	l = b.login(t, "alice")
	b.add(access.SessionIdle - time.Second)
	if _, err := b.BySession(ctx, l.Cookie); err != nil {
		t.Error(err)
	}
	b.add(access.SessionIdle)
	_, err = b.BySession(ctx, l.Cookie)
	wants(t, err, app.Unauthenticated, "not-logged-in")
	b.add(-access.SessionIdle) // it is gone, not only hidden
	_, err = b.BySession(ctx, l.Cookie)
	wants(t, err, app.Unauthenticated, "not-logged-in")
}

func TestLogoutDisableAndPasswordEndSessions(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "root", app.RoleAdmin)
	b.user(t, "alice", app.RoleOperator)
	gone := func(why, cookie string) {
		t.Helper()
		if _, err := b.BySession(ctx, cookie); app.CodeOf(err) != app.Unauthenticated {
			t.Errorf("%s: %v", why, err)
		}
	}
	l := b.login(t, "alice")
	if err := b.Logout(ctx, l.Identity); err != nil {
		t.Fatal(err)
	}
	gone("logout", l.Cookie)

	l, other := b.login(t, "alice"), b.login(t, "alice")
	_, err := b.ChangePassword(ctx, l.Identity, "not the password", password+"2", "192.0.2.1:1")
	wants(t, err, app.Forbidden, "password-wrong")
	fresh, err := b.ChangePassword(ctx, l.Identity, password, password+"2", "192.0.2.1:1")
	if err != nil {
		t.Fatal(err)
	}
	gone("password", l.Cookie)
	gone("password, elsewhere", other.Cookie)
	if _, err := b.BySession(ctx, fresh.Cookie); err != nil {
		t.Error(err)
	}
	yes := true
	if _, err := b.UpdateUser(ctx, "root", "alice", access.UserChange{Disabled: &yes}); err != nil {
		t.Fatal(err)
	}
	gone("disabled", fresh.Cookie)
	_, err = b.Login(ctx, "alice", password+"2", "192.0.2.1:1")
	wants(t, err, app.Unauthenticated, "login-refused")
	got, err := b.ResetPassword(ctx, "Alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Login(ctx, "alice", got, "192.0.2.1:1"); err != nil {
		t.Errorf("after a reset: %v", err)
	}
}

func TestLoginIsLimitedPerUserAndAddress(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "alice", app.RoleViewer)
	b.user(t, "bob", app.RoleViewer)
	for range 5 {
		_, err := b.Login(ctx, "alice", "wrong password", "192.0.2.1:1")
		wants(t, err, app.Unauthenticated, "login-refused")
	}
	_, err := b.Login(ctx, "alice", password, "192.0.2.1:2")
	wants(t, err, app.RateLimited, "too-many-logins")
	b.login(t, "bob")
	if _, err := b.Login(ctx, "alice", password, "192.0.2.9:1"); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
	b.add(15 * time.Minute)
	b.login(t, "alice")
	// One IPv6 network is one address: a host has 2^64 of them.
	for i := range 5 {
		_, _ = b.Login(ctx, "bob", "wrong password", "[2001:db8::"+string(rune('1'+i))+"]:1")
	}
	_, err = b.Login(ctx, "bob", password, "[2001:db8::ffff]:1")
	wants(t, err, app.RateLimited, "too-many-logins")
}

func TestRefusedLoginSaysTheSameOfStrangers(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "alice", app.RoleViewer)
	_, known := b.Login(ctx, "alice", "wrong password", "192.0.2.1:1")
	_, unknown := b.Login(ctx, "mallory", "wrong password", "192.0.2.1:1")
	u, _ := b.store.User(ctx, "alice")
	_, byID := b.Login(ctx, u.ID, password, "192.0.2.1:1")
	for _, err := range []error{unknown, byID} {
		if err == nil || err.Error() != known.Error() {
			t.Errorf("%v differs from %v", err, known)
		}
	}
}

func TestTokensCarryASubsetAndAnEnd(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "root", app.RoleAdmin)
	b.user(t, "alice", app.RoleOperator)
	who := b.login(t, "alice").Identity
	_, _, err := b.CreateToken(ctx, who, "ci", []app.Permission{app.PermUsersWrite}, time.Hour)
	wants(t, err, app.Forbidden, "permission-missing")
	for _, life := range []time.Duration{0, -time.Hour, access.MaxTokenLife + 1} {
		_, _, err = b.CreateToken(ctx, who, "ci", []app.Permission{app.PermMachinesRead}, life)
		wants(t, err, app.InvalidInput, "invalid-field")
	}
	value, tok, err := b.CreateToken(ctx, who, "ci", []app.Permission{app.PermMachinesRead, app.PermMachinesWrite, app.PermTokensWrite}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, err := b.ByToken(ctx, value)
	if err != nil || !id.Can(app.PermMachinesWrite) || id.Can(app.PermImagesRead) || id.Actor() != "token:ci" {
		t.Fatalf("%+v, %v", id, err)
	}
	_, _, err = b.CreateToken(ctx, id, "child", []app.Permission{app.PermMachinesRead}, 2*time.Hour)
	wants(t, err, app.InvalidInput, "invalid-field")
	role := app.RoleViewer
	if _, err := b.UpdateUser(ctx, "root", "alice", access.UserChange{Role: &role}); err != nil {
		t.Fatal(err)
	}
	if id, err = b.ByToken(ctx, value); err != nil || id.Can(app.PermMachinesWrite) || !id.Can(app.PermMachinesRead) {
		t.Errorf("after the owner's demotion: %+v, %v", id, err)
	}
	b.add(time.Hour)
	_, err = b.ByToken(ctx, value)
	wants(t, err, app.Unauthenticated, "token-invalid")
	b.add(-time.Hour)
	other := b.login(t, "root").Identity
	if err := b.DeleteToken(ctx, &access.Identity{User: app.User{ID: "u-nobody"}, Permissions: access.PermissionsOf(app.RoleViewer)}, tok.ID); app.CodeOf(err) != app.NotFound {
		t.Errorf("a stranger deletes a token: %v", err)
	}
	if err := b.DeleteToken(ctx, other, tok.ID); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{value, "", "bcd_", value + "x", strings.Replace(value, "bcd_", "bcx_", 1)} {
		_, err = b.ByToken(ctx, bad)
		wants(t, err, app.Unauthenticated, "token-invalid")
	}
}

func TestLastAdministratorStays(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "root", app.RoleAdmin)
	role, yes := app.RoleViewer, true
	_, err := b.UpdateUser(ctx, "root", "root", access.UserChange{Role: &role})
	wants(t, err, app.Conflict, "last-admin")
	_, err = b.UpdateUser(ctx, "root", "root", access.UserChange{Disabled: &yes})
	wants(t, err, app.Conflict, "last-admin")
	wants(t, b.DeleteUser(ctx, "root", "root"), app.Conflict, "last-admin")
	b.user(t, "second", app.RoleAdmin)
	if err := b.DeleteUser(ctx, "second", "root"); err != nil {
		t.Error(err)
	}
}

func TestRolesHoldTheOnesBefore(t *testing.T) {
	var before []app.Permission
	for _, r := range access.Roles() {
		have := access.PermissionsOf(r)
		for _, p := range before {
			if !slices.Contains(have, p) {
				t.Errorf("%s lacks %s", r, p)
			}
		}
		before = have
	}
	if access.PermissionsOf("root") != nil {
		t.Error("an unknown role may do something")
	}
	var nobody *access.Identity
	if nobody.Can(app.PermMachinesRead) || nobody.Need(app.PermMachinesRead) == nil {
		t.Error("nobody may read")
	}
}

func TestPasswordsAndHashesStayInside(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "alice", app.RoleViewer)
	_, _ = b.Login(ctx, "alice", "wrong password", "192.0.2.1:1")
	l := b.login(t, "alice")
	u, err := b.store.User(ctx, "alice")
	if err != nil || !strings.HasPrefix(u.Hash, "$argon2id$v=19$m=64,t=1,p=1$") {
		t.Fatalf("%q, %v", u.Hash, err)
	}
	s, err := b.store.Session(ctx, l.Identity.SessionID)
	if err != nil || strings.Contains(s.ID, l.Cookie) {
		t.Errorf("session %+v, %v", s, err)
	}
	for _, e := range b.audit {
		if strings.Contains(e.Message, "wrong password") || strings.Contains(e.Message, password) || strings.Contains(e.Message, "argon2") {
			t.Errorf("event %q", e.Message)
		}
	}
	for name, bad := range map[string]string{"short": "123456789", "long": strings.Repeat("ab", 129), "the name": "alicealice", "one letter": "aaaaaaaaaaaa", "binary": "abcdefgh\xff\xfe", "nul": "abcdefgh\x00ij"} {
		who := "x"
		if name == "the name" {
			who = "alicealice"
		}
		if access.ValidPassword(who, bad) == nil {
			t.Errorf("%s accepted", name)
		}
	}
}

// What lasts, such as a stream, ends with its session, and does not keep it alive.
func TestWatchingEndsWithTheSession(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.user(t, "root", app.RoleAdmin)
	b.user(t, "alice", app.RoleOperator)
	who := b.login(t, "alice").Identity
	role := app.RoleViewer
	if _, err := b.UpdateUser(ctx, "root", "alice", access.UserChange{Role: &role}); err != nil {
		t.Fatal(err)
	}
	if again, err := b.Still(ctx, who); err != nil || again.Can(app.PermMachinesWrite) {
		t.Errorf("%+v, %v", again, err)
	}
	for range 11 {
		b.add(time.Hour)
		if _, err := b.Still(ctx, who); err != nil {
			t.Fatal(err)
		}
	}
	b.add(time.Hour)
	_, err := b.Still(ctx, who)
	wants(t, err, app.Unauthenticated, "not-logged-in")
	value, tok, err := b.CreateToken(ctx, b.login(t, "root").Identity, "ci", []app.Permission{app.PermEventsRead}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	id, err := b.ByToken(ctx, value)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Still(ctx, id); err != nil {
		t.Error(err)
	}
	if err := b.store.DeleteToken(ctx, tok.ID); err != nil {
		t.Fatal(err)
	}
	_, err = b.Still(ctx, id)
	wants(t, err, app.Unauthenticated, "not-logged-in")
}
