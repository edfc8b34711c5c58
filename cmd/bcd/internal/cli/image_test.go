package cli

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// An upload is compared with the digest that the publisher states, of either kind and in any case, before a byte is sent.
func TestUploadComparesTheStatedDigest(t *testing.T) {
	s := newShell(t)
	s.login()
	file := filepath.Join(t.TempDir(), "disk.raw")
	content := []byte("a disk")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	short, long := sha256.Sum256(content), sha512.Sum512(content)
	upper := func(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) }
	s.must("", "image", "upload", "a", file, "--sha256", upper(short[:]))
	s.must("", "image", "upload", "b", file, "--sha512", upper(long[:]))
	s.site.Catalog.Read = 0
	for flag, digest := range map[string]string{"--sha256": upper(long[:32]), "--sha512": upper(append(short[:], short[:]...))} {
		if out, err := s.try("", "image", "upload", "c", file, flag, digest); app.CodeOf(err) != app.InvalidInput || s.site.Catalog.Read != 0 {
			t.Errorf("%s: %v, %d bytes sent\n%s", flag, err, s.site.Catalog.Read, out)
		}
	}
	s.must("", "image", "import", "d", "--url", "https://images.example/d.qcow2", "--sha512", upper(long[:]))
	if got := s.site.Catalog.In.SHA512; got != hex.EncodeToString(long[:]) {
		t.Errorf("imported by %q", got)
	}
}
