package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
)

func TestImages(t *testing.T) {
	db := open(t, "")
	b := &app.Image{ID: "img-b", Name: "debian-12", State: "importing", Layout: app.Layout{Table: "gpt", Partitions: []app.Partition{{Number: 1}}}}
	a := &app.Image{ID: "img-a", Name: "alma-9", State: "ready"}
	for _, i := range []*app.Image{b, a} {
		if err := db.CreateImage(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, db.CreateImage(t.Context(), &app.Image{ID: "img-c", Name: "alma-9"}), app.Conflict, "name-taken")
	wantCode(t, db.CreateImage(t.Context(), &app.Image{ID: "img-c", Name: "img-a"}), app.Conflict, "name-taken")
	wantCode(t, db.CreateImage(t.Context(), &app.Image{ID: "img-a", Name: "new"}), app.Conflict, "image-exists")
	wantCode(t, db.CreateImage(t.Context(), &app.Image{ID: "img-d"}), app.InvalidInput, "invalid-field")
	got, err := db.UpdateImage(t.Context(), "debian-12", func(i *app.Image) error { i.ID, i.State, i.RawBytes = "x", "ready", 1<<30; return nil })
	if err != nil || got.ID != "img-b" {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, key := range []string{"img-b", "debian-12"} {
		again, err := db.Image(t.Context(), key)
		if err != nil || cmp.Diff(got, again) != "" {
			t.Errorf("%s: %v, %s", key, err, cmp.Diff(got, again))
		}
	}
	all, err := db.ListImages(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "alma-9" {
		t.Errorf("%v, %v", all, err)
	}
	if err := db.DeleteImage(t.Context(), "alma-9"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.DeleteImage(t.Context(), "img-a"), app.NotFound, "image-not-found")
	_, err = db.UpdateImage(t.Context(), "img-a", func(*app.Image) error { return nil })
	wantCode(t, err, app.NotFound, "image-not-found")
}

func TestUsersTokensSessions(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	if n, err := db.CountUsers(ctx); err != nil || n != 0 {
		t.Errorf("%d users, %v", n, err)
	}
	u := &app.User{ID: "u-1", Name: "Alice", Role: app.RoleAdmin, Hash: "$argon2id$secret"}
	if err := db.CreateUser(ctx, u); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.CreateUser(ctx, &app.User{ID: "u-2", Name: "ALICE"}), app.Conflict, "name-taken")
	wantCode(t, db.CreateUser(ctx, &app.User{ID: "u-1", Name: "bob"}), app.Conflict, "user-exists")
	for _, key := range []string{"u-1", "alice", "Alice"} {
		if got, err := db.User(ctx, key); err != nil || got.Hash != u.Hash || got.Name != "alice" {
			t.Errorf("%s: %+v, %v", key, got, err)
		}
	}
	if _, err := db.UpdateUser(ctx, "alice", func(u *app.User) error { u.Hash, u.Disabled = "new", true; return nil }); err != nil {
		t.Fatal(err)
	}
	if got, _ := db.User(ctx, "alice"); got.Hash != "new" || !got.Disabled {
		t.Errorf("%+v", got)
	}
	if all, err := db.ListUsers(ctx); err != nil || len(all) != 1 || all[0].Hash != "" {
		t.Errorf("%+v, %v", all, err)
	}

	now := time.Now().UTC().Truncate(time.Microsecond)
	s := &app.Session{ID: "hash", UserID: "u-1", Created: now, Seen: now, Expires: now.Add(time.Hour)}
	old := &app.Session{ID: "old", UserID: "u-1", Created: now, Seen: now, Expires: now.Add(-time.Hour)}
	for _, s := range []*app.Session{old, s} {
		if err := db.PutSession(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := db.Session(ctx, "hash"); err != nil || cmp.Diff(s, got) != "" {
		t.Errorf("%v, %s", err, cmp.Diff(s, got))
	}
	_, err := db.Session(ctx, "old")
	wantCode(t, err, app.NotFound, "session-not-found")
	wantCode(t, db.PutSession(ctx, &app.Session{ID: "x", UserID: "u-9"}), app.NotFound, "user-not-found")

	tok := &app.APIToken{ID: "t-1", UserID: "u-1", Name: "ci", Hash: "abc", Permissions: []app.Permission{app.PermMachinesRead}, Created: now, Expires: now.Add(time.Hour)}
	if err := db.CreateToken(ctx, tok); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.CreateToken(ctx, tok), app.Conflict, "token-exists")
	for _, at := range []time.Duration{time.Minute, time.Second} { // the later of two uses counts
		if err := db.TouchToken(ctx, "t-1", now.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	tok.LastUsed = now.Add(time.Minute)
	if got, err := db.TokenByHash(ctx, "abc"); err != nil || cmp.Diff(tok, got) != "" {
		t.Errorf("%v, %s", err, cmp.Diff(tok, got))
	}
	_, err = db.TokenByHash(ctx, "secret-looking-hash")
	if e := wantCode(t, err, app.NotFound, "token-not-found"); strings.Contains(e.Message, "secret") {
		t.Errorf("the hash is shown: %s", e.Message)
	}

	if err := db.DeleteUser(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Session(ctx, "hash"); app.CodeOf(err) != app.NotFound {
		t.Errorf("a session outlived its user: %v", err)
	}
	if all, err := db.ListTokens(ctx, "u-1"); err != nil || len(all) != 0 {
		t.Errorf("tokens outlived their user: %v, %v", all, err)
	}
}

func TestSessionsAndTokensEndOneByOne(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	later := time.Now().Add(time.Hour)
	for _, id := range []string{"u-1", "u-2"} {
		if err := db.CreateUser(ctx, &app.User{ID: id, Name: "name-" + id}); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"a", "b"} {
			if err := db.PutSession(ctx, &app.Session{ID: id + s, UserID: id, Expires: later}); err != nil {
				t.Fatal(err)
			}
			if err := db.CreateToken(ctx, &app.APIToken{ID: id + s, UserID: id, Hash: id + s}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.DeleteSession(ctx, "u-1a"); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteUserSessions(ctx, "u-2"); err != nil {
		t.Fatal(err)
	}
	for id, there := range map[string]bool{"u-1a": false, "u-1b": true, "u-2a": false, "u-2b": false} {
		if _, err := db.Session(ctx, id); (err == nil) != there {
			t.Errorf("session %s: %v", id, err)
		}
	}
	if err := db.DeleteToken(ctx, "u-1a"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.DeleteToken(ctx, "u-1a"), app.NotFound, "token-not-found")
	if all, _ := db.ListTokens(ctx, "u-1"); len(all) != 1 {
		t.Errorf("%v", all)
	}
	if all, _ := db.ListTokens(ctx, ""); len(all) != 3 {
		t.Errorf("%v", all)
	}
}

func TestSecrets(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	s := &app.SealedSecret{Name: "bmc", Sealed: []byte{0, 1, 255}}
	if err := db.PutSecret(ctx, s); err != nil {
		t.Fatal(err)
	}
	if err := db.PutSecret(ctx, &app.SealedSecret{Name: "bmc", Sealed: []byte{2}}); err != nil {
		t.Fatal(err)
	}
	got, err := db.Secret(ctx, "bmc")
	if err != nil || string(got.Sealed) != "\x02" || !got.Created.Equal(s.Created.Truncate(time.Microsecond)) {
		t.Errorf("%+v, %v", got, err)
	}
	if all, err := db.ListSecrets(ctx); err != nil || len(all) != 1 || all[0].Sealed != nil {
		t.Errorf("%+v, %v", all, err)
	}
	wantCode(t, db.PutSecret(ctx, &app.SealedSecret{Name: "x"}), app.InvalidInput, "invalid-field")
	if err := db.DeleteSecret(ctx, "bmc"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.DeleteSecret(ctx, "bmc"), app.NotFound, "secret-not-found")
	_, err = db.Secret(ctx, "bmc")
	wantCode(t, err, app.NotFound, "secret-not-found")
}

func TestProfilesAndPools(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	p := &app.Profile{Name: "r640", KernelArgs: "console=ttyS1", Drivers: map[string]app.Binding{"power": {Driver: "redfish"}}}
	if err := db.PutProfile(ctx, p); err != nil {
		t.Fatal(err)
	}
	if got, err := db.Profile(ctx, "r640"); err != nil || cmp.Diff(p, got) != "" || got.Updated.IsZero() {
		t.Errorf("%v, %s", err, cmp.Diff(p, got))
	}
	wantCode(t, db.PutProfile(ctx, &app.Profile{Name: "R 640"}), app.InvalidInput, "invalid-field")
	if err := db.PutPool(ctx, &app.Pool{Name: "web", Policy: app.PoolPolicy{HardwareProfile: "r640"}}); err != nil {
		t.Fatal(err)
	}
	if e := wantCode(t, db.DeleteProfile(ctx, "r640"), app.Conflict, "profile-in-use"); !strings.Contains(e.Message, "pool web") {
		t.Error(e)
	}
	if err := db.PutPool(ctx, &app.Pool{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	m := sample(1)
	m.Pool, m.Profile = "web", "r640"
	create(t, db, m)
	if e := wantCode(t, db.DeleteProfile(ctx, "r640"), app.Conflict, "profile-in-use"); !strings.Contains(e.Message, "machine node-00001") {
		t.Error(e)
	}
	wantCode(t, db.DeletePool(ctx, "web"), app.Conflict, "pool-in-use")
	if err := db.DeleteMachine(ctx, m.ID); err != nil {
		t.Fatal(err)
	}
	if profiles, err := db.ListProfiles(ctx); err != nil || len(profiles) != 1 {
		t.Errorf("%v, %v", profiles, err)
	}
	if pools, err := db.ListPools(ctx); err != nil || len(pools) != 1 {
		t.Errorf("%v, %v", pools, err)
	}
	for _, err := range []error{db.DeleteProfile(ctx, "r640"), db.DeletePool(ctx, "web")} {
		if err != nil {
			t.Error(err)
		}
	}
	wantCode(t, db.DeleteProfile(ctx, "r640"), app.NotFound, "profile-not-found")
	wantCode(t, db.DeletePool(ctx, "web"), app.NotFound, "pool-not-found")
	_, err := db.Profile(ctx, "r640")
	wantCode(t, err, app.NotFound, "profile-not-found")
	_, err = db.Pool(ctx, "web")
	wantCode(t, err, app.NotFound, "pool-not-found")
}

func TestSettings(t *testing.T) {
	db := open(t, "")
	if v, err := db.Setting(t.Context(), "k"); err != nil || v != "" {
		t.Errorf("%q, %v", v, err)
	}
	for _, want := range []string{"1", "2", ""} {
		if err := db.SetSetting(t.Context(), "k", want); err != nil {
			t.Fatal(err)
		}
		if v, err := db.Setting(t.Context(), "k"); err != nil || v != want {
			t.Errorf("%q, %v", v, err)
		}
	}
	wantCode(t, db.SetSetting(t.Context(), "", "x"), app.InvalidInput, "invalid-field")
}
