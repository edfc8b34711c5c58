package access_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
)

// stuck is a store that fails at every mark of use.
type stuck struct {
	app.AccessStore
	err error
}

func (s *stuck) PutSession(context.Context, *app.Session) error            { return s.err }
func (s *stuck) DeleteSession(context.Context, string) error               { return s.err }
func (s *stuck) TouchToken(_ context.Context, _ string, _ time.Time) error { return s.err }

// Who is logged in stays so on an appliance whose disk is full: nobody else can make room. A session that has ended has
// ended all the same, and other failures are told.
func TestAFullDiskLocksNobodyOut(t *testing.T) {
	b := newBench(t)
	b.user(t, "alice", app.RoleAdmin)
	l := b.login(t, "alice")
	token, _, err := b.CreateToken(t.Context(), l.Identity, "ci", []app.Permission{app.PermMachinesRead}, 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	full := &stuck{AccessStore: b.store, err: app.Errorf(app.StorageFull, "store-full", "the disk is full")}
	b.Service = access.New(access.Config{Store: full, Settings: b.store, Now: b.clock, Params: access.Params{Memory: 64, Time: 1, Threads: 1}})
	b.add(10 * time.Minute)
	if _, err := b.BySession(t.Context(), l.Cookie); err != nil {
		t.Errorf("a session: %v", err)
	}
	if _, err := b.ByToken(t.Context(), token); err != nil {
		t.Errorf("a token: %v", err)
	}
	broken := errors.New("the disk is broken")
	full.err = broken
	if _, err := b.BySession(t.Context(), l.Cookie); !errors.Is(err, broken) {
		t.Errorf("a session: %v", err)
	}
	if _, err := b.ByToken(t.Context(), token); !errors.Is(err, broken) {
		t.Errorf("a token: %v", err)
	}
	full.err = app.Errorf(app.StorageFull, "store-full", "the disk is full")
	b.add(access.SessionIdle)
	if _, err := b.BySession(t.Context(), l.Cookie); app.CodeOf(err) != app.Unauthenticated {
		t.Errorf("a session that has ended: %v", err)
	}
}
