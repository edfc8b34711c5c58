package store

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// open opens the database at path, or a fresh one when path is empty, and closes it at the end of the test.
func open(t testing.TB, path string) *DB {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "bcd.db")
	}
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return db
}

func wantCode(t *testing.T, err error, code app.Code, reason string) *app.Error {
	t.Helper()
	e, ok := app.AsError(err)
	if !ok || e.Code != code || e.Reason != reason {
		t.Fatalf("error is %v, want %s %s", err, code, reason)
	}
	return e
}

// Field case 57: a pragma set by a statement is lost when the pool replaces the connection.
func TestPragmasHoldOnEveryConnection(t *testing.T) {
	db := open(t, "")
	for name, pool := range map[string]*sql.DB{"writer": db.writer, "reader": db.reader} {
		pool.SetConnMaxLifetime(time.Nanosecond) // each use gets a new connection
		want := map[string]string{"foreign_keys": "1", "busy_timeout": "10000", "journal_mode": "wal"}
		if name == "writer" {
			want["synchronous"] = "2"
		} else {
			want["query_only"] = "1"
		}
		for range 3 {
			for pragma, value := range want {
				var got string
				if err := pool.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != value {
					t.Errorf("%s: %s is %q (%v), want %q", name, pragma, got, err, value)
				}
			}
		}
	}
	if _, err := db.reader.Exec("DELETE FROM machines"); err == nil {
		t.Error("a reading connection wrote")
	}
}

func TestParallelReadersAndWriters(t *testing.T) {
	db := open(t, "")
	m := &app.Machine{ID: "m-1", Name: "one", State: app.StateReady}
	if err := db.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const workers, rounds = 8, 20
	for range workers {
		wg.Go(func() {
			for range rounds {
				_, err := db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.Summary.Disks++; return nil })
				if err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range rounds {
				if _, err := db.ListMachines(t.Context(), app.MachineFilter{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := db.Machine(t.Context(), "one")
	if err != nil || got.Summary.Disks != workers*rounds || got.Version != workers*rounds+1 {
		t.Errorf("%d updates counted, version %d (%v), want %d", got.Summary.Disks, got.Version, err, workers*rounds)
	}
}

func TestFailedPartOfABatchUndoesItselfOnly(t *testing.T) {
	db := open(t, "")
	boom := errors.New("boom")
	set := func(key string, err error) *write {
		return &write{ctx: t.Context(), do: func(tx *txn) error {
			if _, e := tx.Exec("INSERT INTO settings (key, value) VALUES (?, 'x')", key); e != nil {
				return e
			}
			return err
		}}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	panics := &write{ctx: t.Context(), do: func(*txn) error { panic("in a change") }}
	late := set("late", nil)
	late.ctx = ended
	batch := []*write{set("a", nil), set("b", boom), panics, late, set("c", nil)}
	if err := db.commit(batch); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "x", "b": "", "late": "", "c": "x"} {
		if got, err := db.Setting(t.Context(), key); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", key, got, err, want)
		}
	}
	if !errors.Is(batch[1].err, boom) || batch[2].panicked != "in a change" || !errors.Is(batch[3].err, context.Canceled) {
		t.Errorf("ends: %v, %v, %v", batch[1].err, batch[2].panicked, batch[3].err)
	}
}

func TestPanicInAChangeReachesItsCaller(t *testing.T) {
	db := open(t, "")
	if err := db.CreateMachine(t.Context(), &app.Machine{ID: "m-1", Name: "one"}); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = db.UpdateMachine(t.Context(), "m-1", func(*app.Machine) error { panic("x") })
	}()
	if err := db.SetSetting(t.Context(), "after", "1"); err != nil {
		t.Errorf("the store is stuck: %v", err)
	}
}

func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bcd.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	if err := db.SetSetting(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + "-wal", path + "-shm", path + ".lock"} {
		if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, error %v, want 0600", p, st.Mode(), err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	foreign := func(t *testing.T, path, sqlText string) {
		db, err := sql.Open("sqlite", dsn(path, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(sqlText); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		code    app.Code
		reason  string
	}{
		"text file": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("hello ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, app.InvalidConfig, "store-not-a-database"},
		"cut header": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("SQLite"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, app.InvalidConfig, "store-not-a-database"},
		"foreign": {func(t *testing.T, path string) {
			foreign(t, path, "CREATE TABLE notes (x)")
		}, app.InvalidConfig, "store-foreign"},
		"newer": {func(t *testing.T, path string) {
			db, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
			foreign(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)")
		}, app.InvalidConfig, "store-newer"},
		"damaged": {func(t *testing.T, path string) {
			db, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", 3000)), 100); err != nil {
				t.Fatal(err)
			}
		}, app.Unavailable, "store-damaged"},
		"in use": {func(t *testing.T, path string) { open(t, path) }, app.Conflict, "store-in-use"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bcd.db")
			c.prepare(t, path)
			before, _ := os.ReadFile(path)
			db, err := Open(t.Context(), Config{Path: path})
			if err == nil {
				db.Close()
			}
			wantCode(t, err, c.code, c.reason)
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("a refused file was changed")
			}
		})
	}
	_, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "none", "bcd.db")})
	wantCode(t, err, app.InvalidConfig, "store-no-directory")
}

func TestPathWithSpecialCharacters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%20&e=f.db")
	db := open(t, path)
	if err := db.SetSetting(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	db := open(t, "")
	for range 2 * readers {
		ctx, cancel := context.WithCancel(t.Context())
		err := db.read(ctx, func(tx *txn) error {
			cancel()
			var n int // far more than anybody waits for
			return tx.QueryRow("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 1000000000) SELECT count(*) FROM c").Scan(&n)
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if _, err := db.ListMachines(t.Context(), app.MachineFilter{}); err != nil {
		t.Errorf("the readers are spent: %v", err)
	}
}

// A full disk undoes the write, says so, and the store goes on once there is room.
func TestDiskFull(t *testing.T) {
	db := open(t, "")
	var pages int
	if err := db.writer.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) {
		var got int
		if err := db.writer.QueryRow("PRAGMA max_page_count = " + itoa(n)).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	limit(pages)
	err := db.SetSetting(t.Context(), "big", strings.Repeat("x", 1<<20))
	wantCode(t, err, app.StorageFull, "store-full")
	if v, err := db.Setting(t.Context(), "big"); err != nil || v != "" {
		t.Errorf("half a write was kept: %d bytes, %v", len(v), err)
	}
	limit(1 << 30)
	if err := db.SetSetting(t.Context(), "big", strings.Repeat("x", 1<<20)); err != nil {
		t.Errorf("after room was made: %v", err)
	}
}

// The same on a file system that is really full.
func TestFileSystemFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	db := open(t, filepath.Join(dir, "bcd.db"))
	var err error
	var kept int
	for i := 0; err == nil && i < 10_000; i++ {
		if err = db.SetSetting(t.Context(), itoa(i), strings.Repeat("x", 10_000)); err == nil {
			kept = i
		}
	}
	wantCode(t, err, app.StorageFull, "store-full")
	if v, err := db.Setting(t.Context(), itoa(kept)); err != nil || len(v) != 10_000 {
		t.Errorf("what was kept cannot be read: %d bytes, %v", len(v), err)
	}
	wantCode(t, db.Backup(t.Context(), filepath.Join(dir, "copy.db")), app.StorageFull, "store-full")
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=32m"); err != nil {
		t.Fatal(err)
	}
	if err := db.SetSetting(t.Context(), "after", "1"); err != nil {
		t.Errorf("after room was made: %v", err)
	}
	if err := db.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	db, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.SetSetting(t.Context(), "a", "b"), app.Unavailable, "store-closed")
	_, err = db.Setting(t.Context(), "a")
	wantCode(t, err, app.Unavailable, "store-closed")
}
