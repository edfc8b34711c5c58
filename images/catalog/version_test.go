package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
)

// TestOtherVersion: an image whose index another version wrote is not misread: it says that it is to be imported again, and
// its packs are given up.
func TestOtherVersion(t *testing.T) {
	b := newBench(t, nil)
	i, err := b.take(Source{Name: "old"}, diskImage(11, 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "images", i.ID, "index")
	enc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	enc[8]-- // the version
	if err := os.WriteFile(path, enc, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.UpdateImage(t.Context(), i.ID, func(i *app.Image) error { i.Index = chunk.Digest(enc); return nil }); err != nil {
		t.Fatal(err)
	}
	b.reopen(t, nil)
	row, err := b.store.Image(t.Context(), "old")
	if err != nil || row.State != Failed || !strings.Contains(row.Reason, "another version") {
		t.Errorf("the row is %+v, %v", row, err)
	}
	b.reopen(t, nil)
	if left := b.files(t); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
	if _, err := b.take(Source{Name: "old"}, diskImage(11, 3<<20)); err != nil {
		t.Errorf("it cannot be imported again: %v", err)
	}
}
