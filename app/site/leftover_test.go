package site

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/store"
)

// A backup that cannot be made fails before its first byte, so that the caller learns why; one that was killed leaves
// nothing beyond the next start.
func TestABackupFailsBeforeItsFirstByte(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, databaseName)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := backup(ctx, db, dir, "a long passphrase", &out); err == nil || out.Len() > 0 {
		t.Errorf("%v after %d bytes", err, out.Len())
	}
	left := filepath.Join(dir, backupPrefix+"x-1.db")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeLeftovers(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s stays: %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, databaseName)); err != nil {
		t.Error(err)
	}
}
