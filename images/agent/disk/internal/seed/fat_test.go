package seed

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadByOthers has fsck.vfat and mtools read what Make wrote, for both sector sizes.
func TestReadByOthers(t *testing.T) {
	for _, tool := range []string{"fsck.vfat", "mcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (packages dosfstools, mtools)", tool)
		}
	}
	files := map[string][]byte{"meta-data": []byte("instance-id: i-1\n"), "user-data": bytes.Repeat([]byte("#cloud-config\n"), 9000),
		"network-config": {}, "thirteen-char": []byte("x"), "vendor-data": bytes.Repeat([]byte{0xff}, cluster)}
	for _, sector := range []int{512, 4096} {
		b, err := Make(files, sector, 0x12345678)
		if err != nil {
			t.Fatal(err)
		}
		img := filepath.Join(t.TempDir(), "img")
		if err := os.WriteFile(img, append(b, make([]byte, Size-len(b))...), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("fsck.vfat", "-n", "-v", img).CombinedOutput(); err != nil {
			t.Errorf("sector %d: fsck.vfat: %v: %s", sector, err, out)
		}
		for name, want := range files {
			out := filepath.Join(t.TempDir(), "out")
			if msg, err := exec.Command("mcopy", "-n", "-i", img, "::"+name, out).CombinedOutput(); err != nil {
				t.Errorf("sector %d: mcopy %s: %v: %s", sector, name, err, msg)
				continue
			}
			if got, _ := os.ReadFile(out); !bytes.Equal(got, want) {
				t.Errorf("sector %d: %s has %d bytes, want %d", sector, name, len(got), len(want))
			}
		}
		if out, _ := exec.Command("blkid", "-p", "-o", "export", img).Output(); !strings.Contains(string(out), "LABEL=CIDATA") || !strings.Contains(string(out), "UUID=1234-5678") {
			t.Errorf("sector %d: blkid says %s", sector, out)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, files := range []map[string][]byte{{"a/b": nil}, {"": nil}, {"x\n": nil}, {"big": make([]byte, MaxBytes+1)}} {
		if _, err := Make(files, 512, 1); err == nil {
			t.Error("accepted")
		}
	}
}
