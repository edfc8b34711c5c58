package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/store"
)

func open(t *testing.T) (*secret.Vault, *store.DB, string) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	file := filepath.Join(t.TempDir(), "secret.key")
	env := map[string]string{"BCD_SECRET_A": "plain", "BCD_SECRET_B": `{"username":"root","password":"hunter2hunter2"}`, "PATH": "/bin"}
	v, err := secret.Open(secret.Config{KeyFile: file, Store: db, Env: func(n string) (string, bool) { s, ok := env[n]; return s, ok }})
	if err != nil {
		t.Fatal(err)
	}
	return v, db, file
}

func TestSecretsComeBackAndNothingElseDoes(t *testing.T) {
	v, db, file := open(t)
	ctx := t.Context()
	if err := v.Put(ctx, "rack1.bmc", secret.Login("root", "hunter2hunter2")); err != nil {
		t.Fatal(err)
	}
	got, err := v.Resolve(ctx, secret.Ref("rack1.bmc"))
	if p, ok := got.Field("password"); err != nil || !ok || p != "hunter2hunter2" {
		t.Fatalf("%v, %v", ok, err)
	}
	row, err := db.Secret(ctx, "rack1.bmc")
	if err != nil || bytes.Contains(row.Sealed, []byte("hunter2")) {
		t.Fatalf("stored in the open, %v", err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file %v, %v", info.Mode(), err)
	}
	// The same bytes under another name, cut off, or changed do not open.
	moved := *row
	moved.Name = "other"
	cut := *row
	cut.Name, cut.Sealed = "cut", row.Sealed[:10]
	flip := *row
	flip.Name, flip.Sealed = "flip", append(bytes.Clone(row.Sealed[:len(row.Sealed)-1]), row.Sealed[len(row.Sealed)-1]^1)
	for _, r := range []app.SealedSecret{moved, cut, flip} {
		if err := db.PutSecret(ctx, &r); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Get(ctx, r.Name); app.CodeOf(err) != app.InvalidConfig {
			t.Errorf("%s opened: %v", r.Name, err)
		}
	}
}

func TestRotateReseals(t *testing.T) {
	v, db, file := open(t)
	ctx := t.Context()
	if err := v.Put(ctx, "a", secret.Text("one")); err != nil {
		t.Fatal(err)
	}
	before, _ := db.Secret(ctx, "a")
	old, _ := os.ReadFile(file)
	if err := v.Rotate(ctx); err != nil {
		t.Fatal(err)
	}
	after, _ := db.Secret(ctx, "a")
	fresh, _ := os.ReadFile(file)
	if bytes.Equal(before.Sealed, after.Sealed) || bytes.Equal(old, fresh) || bytes.Count(fresh, []byte("\n")) != 2 {
		t.Errorf("nothing was rotated: %q", fresh)
	}
	again, err := secret.Open(secret.Config{KeyFile: file, Store: db})
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.Get(ctx, "a")
	if s, _ := got.Text(); err != nil || s != "one" {
		t.Errorf("%q, %v", s, err)
	}
	// The old key is gone: what it sealed opens no more.
	if err := db.PutSecret(ctx, before); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Get(ctx, "a"); app.CodeOf(err) != app.InvalidConfig {
		t.Errorf("sealed under the old key: %v", err)
	}
}

func TestKeyFileOthersMayReadIsRefused(t *testing.T) {
	_, db, file := open(t)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o601} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := secret.Open(secret.Config{KeyFile: file, Store: db})
		if e, ok := app.AsError(err); !ok || e.Reason != "secret-key-mode" || !strings.Contains(e.WayOut, "chmod 600") {
			t.Errorf("%o: %v", mode, err)
		}
	}
	if err := os.WriteFile(file, []byte("bcd secret key v1\nnot base64\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Open(secret.Config{KeyFile: file, Store: db}); app.CodeOf(err) != app.InvalidConfig {
		t.Errorf("a file of another kind: %v", err)
	}
}

func TestReferences(t *testing.T) {
	v, _, _ := open(t)
	ctx := t.Context()
	if got, err := v.Resolve(ctx, "env://BCD_SECRET_A"); err != nil {
		t.Error(err)
	} else if s, ok := got.Text(); !ok || s != "plain" {
		t.Errorf("%q", s)
	}
	if got, err := v.Resolve(ctx, "env://BCD_SECRET_B"); err != nil {
		t.Error(err)
	} else if s, _ := got.Field("username"); s != "root" {
		t.Errorf("%q", s)
	}
	for ref, want := range map[string]app.Code{
		"vault://kv/bmc#password": app.InvalidConfig, "env://PATH": app.InvalidInput, "env://BCD_SECRET_": app.InvalidInput,
		"env://BCD_SECRET_MISSING": app.NotFound, "secret://other/x": app.InvalidInput, "secret://root/../x": app.InvalidInput,
		"secret://root/none": app.NotFound, "hunter2hunter2": app.InvalidInput, "": app.InvalidInput,
	} {
		_, err := v.Resolve(ctx, ref)
		if app.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", ref, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats what may be a password: %v", err)
		}
	}
}

func TestValuesNeverPrint(t *testing.T) {
	val := secret.Login("root", "hunter2hunter2")
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", val, "in", struct{ V secret.Value }{val})
	js, err := json.Marshal(map[string]any{"v": val, "p": &val})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %q %d %x", val, val, val, val, val, val, val) + fmt.Sprintf("%+v", struct{ V secret.Value }{val})
	for _, s := range []string{log.String(), string(js), text} {
		if strings.Contains(s, "hunter2") || strings.Contains(s, "68756e746572") || !strings.Contains(s, "[secret]") {
			t.Errorf("printed: %s", s)
		}
	}
	for _, bad := range []string{`7`, `null`, `["a"]`, `{"a":7}`, `{"a":null}`, `{"password":["hunter2"]}`} {
		var v secret.Value
		if err := json.Unmarshal([]byte(bad), &v); app.CodeOf(err) != app.InvalidInput || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if secret.Text("").Validate() == nil || secret.Text(strings.Repeat("x", secret.MaxBytes+1)).Validate() == nil {
		t.Error("limits do not hold")
	}
}

func FuzzValue(f *testing.F) {
	f.Add([]byte(`"a"`))
	f.Add([]byte(`{"username":"u","password":"p"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v secret.Value
		if json.Unmarshal(b, &v) != nil {
			return
		}
		if out, err := json.Marshal(v); err != nil || string(out) != `"[secret]"` {
			t.Errorf("%s, %v", out, err)
		}
	})
}
