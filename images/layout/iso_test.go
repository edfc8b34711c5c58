package layout

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestISO reads what xorriso makes: nothing bootable, BIOS alone, and both.
func TestISO(t *testing.T) {
	if _, err := exec.LookPath("xorriso"); err != nil {
		t.Skip("xorriso is not installed")
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"bios.img", "efi.img"} {
		if err := os.WriteFile(filepath.Join(tree, f), make([]byte, 4096), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bios := []string{"-b", "bios.img", "-no-emul-boot", "-boot-load-size", "4"}
	for name, c := range map[string]struct {
		args       []string
		bios, uefi bool
	}{
		"data":          {nil, false, false},
		"bios":          {bios, true, false},
		"bios and uefi": {append(bios, "-eltorito-alt-boot", "-e", "efi.img", "-no-emul-boot"), true, true},
		"uefi":          {[]string{"-e", "efi.img", "-no-emul-boot"}, false, true},
	} {
		iso := filepath.Join(dir, "iso")
		args := append([]string{"-as", "mkisofs", "-quiet", "-o", iso}, c.args...)
		if out, err := exec.Command("xorriso", append(args, tree)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		b, err := os.ReadFile(iso)
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := ISO(bytes.NewReader(b)); !ok || l.Table != TableISO || l.BIOS != c.bios || l.UEFI != c.uefi {
			t.Errorf("%s: %+v, %v", name, l, ok)
		}
	}
	if _, ok := ISO(bytes.NewReader(make([]byte, 1<<20))); ok {
		t.Error("zeros are an ISO")
	}
}

// FuzzISO: no input panics.
func FuzzISO(f *testing.F) {
	b := make([]byte, 40<<10)
	copy(b[16*isoSector:], "\x01CD001")
	copy(b[17*isoSector:], "\x00CD001\x01EL TORITO SPECIFICATION")
	b[17*isoSector+0x47] = 18
	copy(b[18*isoSector:], "\x01\xEF")
	copy(b[18*isoSector+0x1e:], "\x55\xAA\x88")
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) { ISO(bytes.NewReader(b)) })
}
