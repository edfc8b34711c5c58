package ramdisk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/images/flat"
)

func TestBuildGRUB(t *testing.T) {
	if _, err := exec.LookPath("grub-mkimage"); err != nil {
		t.Skipf("left out: %v (install grub-common, grub-pc-bin and grub-efi-amd64-bin)", err)
	}
	var loaders [2]flat.Loaders
	for n := range loaders {
		dir := filepath.Join(t.TempDir(), GRUB)
		if _, err := BuildGRUB(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		m, err := Verify(os.DirFS(dir))
		if err != nil || len(m.Parts) != 1 || m.Parts[0].License == "" || m.Parts[0].Source == "" {
			t.Fatalf("%+v, %v", m, err)
		}
		if loaders[n], err = flat.ReadLoaders(os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(loaders[0].Core, loaders[1].Core) || !bytes.Equal(loaders[0].EFI, loaders[1].EFI) {
		t.Error("two builds differ")
	}
}
