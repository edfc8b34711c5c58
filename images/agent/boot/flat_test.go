package boot

import (
	"strings"
	"testing"
)

// TestImportedRoot finds the entry that package flat writes for a root file system without one, by the distribution's links.
func TestImportedRoot(t *testing.T) {
	p := tree(t, 3, rootUUID, "root", map[string]string{
		"vmlinuz": "->boot/vmlinuz-6.1.0-57-amd64", "initrd.img": "->boot/initrd.img-6.1.0-57-amd64",
		"boot/vmlinuz-6.1.0-57-amd64": "kernel", "boot/initrd.img-6.1.0-57-amd64": "initrd",
		"boot/grub/grub.cfg": `# Written when this root file system was imported as an image. grub-mkconfig, where the system has it, writes a new one.
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
set default=0
set timeout=1

menuentry 'Linux 6.1.0-57-amd64' {
	search --no-floppy --fs-uuid --set=root ` + rootUUID + `
	linux /vmlinuz root=UUID=` + rootUUID + ` ro console=tty0 console=ttyS0,115200n8
	initrd /initrd.img
}
`})
	for _, firmware := range []string{"bios", "uefi"} {
		e, err := find([]*partition{tree(t, 2, "BC01-E5F0", "", nil), p}, firmware, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if e.part != p || !strings.HasPrefix(e.args, "root=UUID="+rootUUID+" ro console=tty0") || e.kernel != "/vmlinuz" || len(e.initrds) != 1 || e.initrds[0] != "/initrd.img" {
			t.Errorf("%s: %+v", firmware, e)
		}
	}
}
