package ramdisk

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/app"
)

// fakeApt puts apt-cache and apt-get on the PATH: a metapackage, its kernel, and a download of the given bytes.
func fakeApt(t *testing.T, promised, delivered string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(promised)))
	zero := fmt.Sprintf("%064d", 0)
	show := `#!/bin/sh
echo "cache $3" >> ` + log + `
case $3 in
linux-image-amd64) printf 'Package: linux-image-amd64\nVersion: 6.1.9-1\nDepends: linux-image-6.1.0-9-amd64 (= 6.1.9-1)\nSHA256: ` + zero + `\n\nPackage: old\n' ;;
linux-image-6.1.0-9-amd64) printf 'Package: linux-image-6.1.0-9-amd64\nVersion: 1:6.1.9-1\nDepends: kmod, linux-base\nSHA256: ` + sum + `\n' ;;
*) echo "E: No packages found" >&2; exit 100 ;;
esac
`
	get := `#!/bin/sh
echo "get $5" >> ` + log + `
printf '` + delivered + `' > linux-image-6.1.0-9-amd64_1%3a6.1.9-1_amd64.deb
`
	for name, body := range map[string]string{"apt-cache": show, "apt-get": get} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return log
}

// TestFetchDeb: the metapackage leads to the kernel, whose bytes are checked and downloaded once.
func TestFetchDeb(t *testing.T) {
	log := fakeApt(t, "deb", "deb")
	dir := filepath.Join(t.TempDir(), "debs")
	for range 2 {
		p, err := FetchDeb(t.Context(), GenericKernel, dir)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(p); string(b) != "deb" || filepath.Base(p) != "linux-image-6.1.0-9-amd64_1%3a6.1.9-1_amd64.deb" {
			t.Errorf("%s: %q %v", p, b, err)
		}
	}
	b, err := os.ReadFile(log)
	want := "cache linux-image-amd64\ncache linux-image-6.1.0-9-amd64\nget linux-image-6.1.0-9-amd64=1:6.1.9-1\ncache linux-image-amd64\ncache linux-image-6.1.0-9-amd64\n"
	if string(b) != want || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestFetchDebRefuses(t *testing.T) {
	fakeApt(t, "deb", "tampered")
	dir := t.TempDir()
	for name, reason := range map[string]string{
		GenericKernel: "package-digest", "absent": "package-not-found", "-o=evil": "invalid-field", "../x": "invalid-field",
	} {
		_, err := FetchDeb(t.Context(), name, dir)
		if e, ok := app.AsError(err); !ok || e.Reason != reason {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
	t.Setenv("PATH", t.TempDir())
	if e, ok := app.AsError(second(FetchDeb(t.Context(), GenericKernel, dir))); !ok || e.Reason != "no-apt" {
		t.Errorf("%v", e)
	}
}
