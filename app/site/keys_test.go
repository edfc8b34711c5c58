package site

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
)

func reason(err error) string {
	if e, ok := app.AsError(err); ok {
		return e.Reason
	}
	return ""
}

// A database is never opened with keys that are not its own, and no new key is made in place of a lost one.
func TestKeysBelongToTheirDatabase(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, databaseName)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	write := func(name, key string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkKeys(t.Context(), db, dir); err != nil {
		t.Fatalf("a first start: %v", err)
	}
	for _, name := range vital {
		write(name, "first "+name)
	}
	if err := errors.Join(rememberKeys(t.Context(), db, dir), checkKeys(t.Context(), db, dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range vital {
		write(name, "other")
		if err := checkKeys(t.Context(), db, dir); reason(err) != "keys-differ" {
			t.Errorf("another %s: %v", name, err)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := checkKeys(t.Context(), db, dir); reason(err) != "keys-missing" {
			t.Errorf("no %s: %v", name, err)
		}
		write(name, "first "+name)
		if err := checkKeys(t.Context(), db, dir); err != nil {
			t.Errorf("%s put back: %v", name, err)
		}
	}
}

// Root restores, and the account of the service must be able to read what it restored.
func TestRestoredFilesBelongToTheOwnerOfTheDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving files away needs root")
	}
	const account = 65534
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, keysDir), 0o700), os.WriteFile(filepath.Join(dir, keysDir, "site.key"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, databaseName), nil, 0o600), os.Chown(dir, account, account)); err != nil {
		t.Fatal(err)
	}
	if err := giveTo(dir, databaseName, keysDir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{databaseName, keysDir, filepath.Join(keysDir, "site.key")} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if owner := st.Sys().(*syscall.Stat_t); owner.Uid != account || owner.Gid != account {
			t.Errorf("%s belongs to %d:%d", name, owner.Uid, owner.Gid)
		}
	}
}
