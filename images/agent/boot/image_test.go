package boot

import (
	"os"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// Ubuntu's cloud images start their kernel without an initrd first, with panic=-1: a kernel that has its drivers in the
// initrd would reset the machine.
func TestUbuntuWithoutInitrd(t *testing.T) {
	p := tree(t, 1, rootUUID, "cloudimg-rootfs", map[string]string{"boot/grub/grub.cfg": `
load_env
if [ -n "$initrdfail" ]; then set default=0; else set default="simple"; fi
function note { if [ -z "$initrdfail" ]; then set initrdfail=1; save_env initrdfail; fi; }
menuentry 'Ubuntu' --id simple {
	search --fs-uuid --set=root ` + rootUUID + `
	if [ "$initrdfail" = 1 ]; then
		linux /boot/vmlinuz-6.8.0-45-generic root=PARTUUID=6b29 ro console=ttyS0
		initrd /boot/initrd.img-6.8.0-45-generic
	else
		linux /boot/vmlinuz-6.8.0-45-generic root=PARTUUID=6b29 ro console=ttyS0 panic=-1
	fi
	note
}
`})
	e, err := find([]*partition{p}, "uefi", quiet)
	if err != nil || strings.Join(e.initrds, " ") != "/boot/initrd.img-6.8.0-45-generic" || strings.Contains(e.args, "panic") {
		t.Errorf("%+v %v", e, err)
	}
}

// An image that was made on loop devices without knowing its own UUIDs names a device of the machine that made it.
func TestRootOfTheMachineThatMadeTheImage(t *testing.T) {
	k := New(Config{Log: quiet, Load: func(*os.File, *os.File, string) error { t.Error("loaded"); return nil }})
	p := tree(t, 1, rootUUID, "", map[string]string{"vmlinuz": "K"})
	for _, root := range []string{"/dev/loop0p1", "/dev/mapper/loop0p1", "/dev/nbd0p2"} {
		_, err := k.loadEntry(entry{part: p, kernel: "/vmlinuz", args: "ro root=" + root}, "")
		if e, ok := app.AsError(err); !ok || e.Reason != "root-elsewhere" || e.WayOut == "" {
			t.Errorf("%s: %v", root, err)
		}
	}
}
