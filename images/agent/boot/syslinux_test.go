package boot

import (
	"errors"
	"strings"
	"testing"
)

func TestSyslinux(t *testing.T) {
	for name, c := range map[string]struct {
		cfg                   string
		kernel, initrds, args string // where the kernel is empty there is no entry
		sure                  bool
	}{
		"extlinux of Debian": {cfg: "## /boot/extlinux/extlinux.conf\ndefault l0\nprompt 0\ntimeout 50\n\nlabel l0\n\tmenu label Debian\n\tlinux /boot/vmlinuz\n\tinitrd /boot/initrd.img\n\tappend root=/dev/vda1 ro quiet\n\nlabel l0r\n\tlinux /boot/vmlinuz\n\tappend single\n",
			kernel: "/boot/vmlinuz", initrds: "/boot/initrd.img", args: "root=/dev/vda1 ro quiet"},
		"Alpine":          {cfg: "DEFAULT menu.c32\nPROMPT 0\nLABEL virt\n  MENU DEFAULT\n  LINUX vmlinuz-virt\n  INITRD a.img,b.img\n  APPEND root=UUID=1 modules=ext4\n", kernel: "/boot/extlinux/vmlinuz-virt", initrds: "/boot/extlinux/a.img /boot/extlinux/b.img", args: "root=UUID=1 modules=ext4"},
		"initrd appended": {cfg: "LABEL a\nKERNEL /k\nAPPEND initrd=/i ro root=/dev/sda1\n", kernel: "/k", initrds: "/i", args: "ro root=/dev/sda1"},
		"a menu only":     {cfg: "LABEL a\nKERNEL menu.c32\n"},
		"nothing":         {cfg: "PROMPT 0\n", sure: true},
		"elsewhere":       {cfg: "INCLUDE more.cfg\n"},
	} {
		e, found, err := syslinux([]*partition{tree(t, 1, rootUUID, "", map[string]string{"boot/extlinux/extlinux.conf": c.cfg})})
		if !found || (err == nil) != (c.kernel != "") || errors.As(err, new(sure)) != c.sure {
			t.Errorf("%s: %v %v", name, found, err)
		}
		if e.kernel != c.kernel || strings.Join(e.initrds, " ") != c.initrds || e.args != c.args {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if _, found, _ := syslinux([]*partition{tree(t, 1, rootUUID, "", nil)}); found {
		t.Error("a configuration where there is none")
	}
}

func FuzzSyslinux(f *testing.F) {
	f.Add("DEFAULT a\nLABEL a\nLINUX /k\nAPPEND initrd=/i root=/dev/sda1\nMENU DEFAULT\nINCLUDE x\n")
	f.Fuzz(func(t *testing.T, cfg string) {
		if s, err := chosenStanza(cfg); err == nil && s.kernel == "" {
			t.Error("an entry without a kernel")
		}
	})
}
