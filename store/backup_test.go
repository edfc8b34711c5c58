package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// Field case 61: a backup of a running database holds the commit made just before it, in one file.
func TestBackupHoldsTheLastCommit(t *testing.T) {
	db := open(t, "")
	create(t, db, sample(1))
	dir := t.TempDir()
	copied := filepath.Join(dir, "backup.db")
	for i := range 3 { // none is lost to the write-ahead log
		if err := db.SetSetting(t.Context(), "n", itoa(i)); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(copied)
		if err := db.Backup(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the backup lie %v, %v", entries, err)
	}
	if st, err := os.Stat(copied); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}

	path := filepath.Join(t.TempDir(), "restored.db")
	if err := Restore(t.Context(), copied, path); err != nil {
		t.Fatal(err)
	}
	restored := open(t, path)
	if v, err := restored.Setting(t.Context(), "n"); err != nil || v != "2" {
		t.Errorf("n is %q, %v", v, err)
	}
	if _, err := restored.Machine(t.Context(), "node-00001"); err != nil {
		t.Error(err)
	}
	if err := restored.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := restored.SetSetting(t.Context(), "n", "3"); err != nil {
		t.Errorf("a restored database cannot be written: %v", err)
	}
	wantCode(t, db.Backup(t.Context(), copied), app.Conflict, "backup-exists")
	wantCode(t, Restore(t.Context(), copied, path), app.Conflict, "restore-exists")
	wantCode(t, Restore(t.Context(), filepath.Join(dir, "none"), filepath.Join(dir, "x.db")), app.NotFound, "backup-not-found")
}

func TestBackupOfADatabaseNobodyHasOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bcd.db")
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.SetSetting(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("closing left a write-ahead log")
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := BackupOf(t.Context(), path, copied); err != nil {
		t.Fatal(err)
	}
	if v, err := open(t, copied).Setting(t.Context(), "k"); err != nil || v != "v" {
		t.Errorf("%q, %v", v, err)
	}
	wantCode(t, BackupOf(t.Context(), path+"x", copied+"x"), app.NotFound, "database-not-found")
}

// What a power cut leaves: the file and its write-ahead log as they are at that moment.
func TestCommitsSurviveACrash(t *testing.T) {
	db := open(t, "")
	crashed := filepath.Join(t.TempDir(), "bcd.db")
	for i := range 20 {
		if err := db.SetSetting(t.Context(), "n", itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"", "-wal"} {
		raw, err := os.ReadFile(db.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(crashed+suffix, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, crashed)
	if v, err := again.Setting(t.Context(), "n"); err != nil || v != "19" {
		t.Errorf("n is %q, %v", v, err)
	}
	if err := again.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDamageFoundLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bcd.db")
	db, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		create(t, db, sample(i))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(raw) * 3 / 4; i < len(raw); i++ {
		raw[i] = 0xa5
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	db = open(t, path)
	wantCode(t, db.Check(t.Context()), app.Unavailable, "store-damaged")
	_, err = db.ListMachines(t.Context(), app.MachineFilter{Limit: 1000})
	wantCode(t, err, app.Unavailable, "store-damaged")
}

func TestBackupWhileOthersWrite(t *testing.T) {
	db := open(t, "")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := db.SetSetting(t.Context(), itoa(i%50), strings.Repeat("x", i%1000)); err != nil {
				t.Error(err)
			}
		}
	}()
	for i := range 5 {
		if err := db.Backup(t.Context(), filepath.Join(t.TempDir(), itoa(i))); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
}

func TestRestoreRefusesADamagedBackup(t *testing.T) {
	db := open(t, "")
	for i := range 200 {
		create(t, db, sample(i))
	}
	good := filepath.Join(t.TempDir(), "good.db")
	if err := db.Backup(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	middle := append([]byte{}, whole...)
	for i := len(middle) / 2; i < len(middle)/2+20_000; i++ {
		middle[i] = 0xa5
	}
	for name, bytes := range map[string][]byte{
		"damaged":   middle,
		"cut short": whole[:len(whole)/2],
		"text":      []byte("not a database at all, but long enough to be one"),
		"empty":     nil,
	} {
		dir := t.TempDir()
		bad, path := filepath.Join(dir, "bad"), filepath.Join(dir, "bcd.db")
		if err := os.WriteFile(bad, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Restore(t.Context(), bad, path); app.CodeOf(err) != app.Unavailable && app.CodeOf(err) != app.InvalidConfig {
			t.Errorf("%s: %v", name, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: left behind %v", name, entries)
		}
	}
}
