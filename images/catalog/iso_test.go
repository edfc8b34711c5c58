package catalog

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// isoImage is the start of an ISO 9660 image, and 300 kB behind it.
func isoImage() []byte {
	b := make([]byte, 340<<10)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(b[40<<10:])
	copy(b[32768:], "\x01CD001\x01")
	return b
}

// TestISO: a medium is kept as one file, served as such, found again after a restart, and deleted whole.
func TestISO(t *testing.T) {
	b := newBench(t, nil)
	want := isoImage()
	for name, data := range map[string][]byte{"iso": want, "iso.zst": pack(t, "zst", want)} {
		i, err := b.take(Source{Name: strings.ReplaceAll(name, ".", "-")}, data)
		if err != nil {
			t.Fatal(err)
		}
		if i.Format != name || i.State != Ready || i.Layout.Table != "iso9660" || i.RawBytes != int64(len(want)) {
			t.Errorf("%+v", i)
		}
		b.reopen(t, nil)
		f, err := b.OpenIndex(t.Context(), strings.TrimPrefix(ISOPath(i), "/images/"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		f.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes are served, %v", name, len(got), err)
		}
		if name == "iso" {
			if err := os.Truncate(f.Name(), 100); err != nil {
				t.Fatal(err)
			}
			b.reopen(t, nil)
			if i, err = b.store.Image(t.Context(), "iso"); err != nil || i.State != Failed || i.Reason == "" {
				t.Errorf("an ISO that was cut short is %+v, %v", i, err)
			}
		}
		if err := b.Delete(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	if left := b.files(t); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}
