package netboot

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// bootableISO is a CD image with GRUB for BIOS and for UEFI. GRUB reads a file of a megabyte from the medium, as it would
// an installer's kernel, checks its digest and says so on the serial port.
func bootableISO(t *testing.T) string {
	t.Helper()
	need(t, "grub-mkrescue")
	need(t, "xorriso")
	need(t, "mformat")
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	payload := make([]byte, 1<<20)
	_, _ = rand.Read(payload)
	files := map[string]string{
		"payload": string(payload), "sums": fmt.Sprintf("%x  payload\n", sha256.Sum256(payload)),
		"boot/grub/grub.cfg": "serial --unit=0 --speed=115200\nterminal_output serial\necho ISO-STARTED\nif hashsum --hash sha256 --prefix / --check /sums; then echo ISO-READ-WELL; fi\nhalt\n",
	}
	for name, content := range files {
		name = filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	iso := filepath.Join(dir, "image.iso")
	run(t, "grub-mkrescue", "-o", iso, "--install-modules=serial terminal iso9660 hashsum gcry_sha256 echo test halt normal part_msdos part_gpt fat all_video", tree)
	return iso
}

// An ISO image is started from the boot listener, with Debian's own iPXE of 2019.
func TestQEMUMachineBootsAnISO(t *testing.T) {
	for name, args := range map[string]func(*testing.T) []string{
		"BIOS": func(*testing.T) []string { return bios() },
		"BIOS iPXE of 2019": func(*testing.T) []string {
			return []string{"-boot", "n", "-device", "e1000,netdev=n0,mac=" + string(vmMAC) + ",romfile=" + filepath.Join(ipxeDir, "82540em.rom")}
		},
		"UEFI iPXE of 2019": uefi,
	} {
		t.Run(name, func(t *testing.T) {
			w := newLAN(t)
			iso := bootableISO(t)
			var sent atomic.Int64
			port := &fakePort{targets: map[app.MAC]Target{vmMAC: {MachineID: "m-vm", Name: "node1", Kind: KindISO, ISO: "/iso/k3y/image.iso"}}}
			_, e := w.serve(newMemStore(labSubnet("br0", "full")), port, qemuConfig, func(c *Config) {
				c.Mounts = []Mount{{
					Prefix: "/iso/", Quiet: true, Sent: func(_ string, n int64) { sent.Add(n) },
					Open: func(context.Context, string) (*os.File, error) { return os.Open(iso) },
				}}
			})
			v := w.boot(args(t)...)
			e.wait(t, "script", guestPatience, kind("ipxe.script"))
			t.Logf("script after %v", time.Since(v.started).Round(100*time.Millisecond))
			t.Logf("started after %v", v.waitText(t, "ISO-STARTED", guestPatience))
			t.Logf("read after %v", v.waitText(t, "ISO-READ-WELL", guestPatience))
			if n := sent.Load(); n < 1<<20 {
				t.Errorf("%d bytes were seen leaving, GRUB alone read more", n)
			}
		})
	}
}
