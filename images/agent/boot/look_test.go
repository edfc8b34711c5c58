package boot

import (
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func TestLook(t *testing.T) {
	disk := agentv1.DiskTarget{Serial: "OS1"}
	for name, c := range map[string]struct {
		cfg  string
		want string // kernel or the refusal's reason
		note string
	}{
		"an entry":                       {cfg: separate, want: "/vmlinuz"},
		"a menu without entries":         {want: "no-boot-entry"},
		"a kernel that is not there":     {cfg: strings.Replace(separate, "/vmlinuz", "/vmlinuz-6.1", 1), want: "no-boot-entry"},
		"an initrd that is not there":    {cfg: strings.Replace(separate, "/initrd\n", "/initrd-6.1\n", 1), want: "no-boot-entry"},
		"the root of who made the image": {cfg: strings.Replace(separate, "LABEL=rootfs", "/dev/loop0p1", 1), want: "root-elsewhere"},
		"a root that is not on the disk": {cfg: strings.Replace(separate, "LABEL=rootfs", "UUID=11111111-2222-3333-4444-555555555555", 1), want: "root-elsewhere"},
		"a root that is":                 {cfg: strings.Replace(separate, "LABEL=rootfs", "UUID=5F8F25D6-7d3f-4b2e-9a51-0c2d3e4f5a6b", 1), want: "/vmlinuz"},
		"no root":                        {cfg: strings.Replace(separate, "root=LABEL=rootfs ", "", 1), want: "/vmlinuz", note: "names no root file system"},
		"a menu made by a loop":          {cfg: "for k in /vmlinuz*; do menuentry $k { linux $k root=/dev/vda1; }; done\n", note: "its menu is empty"},
		"a menu from elsewhere":          {cfg: "configfile (lvm/vg-boot)/grub/grub.cfg\n", note: "its menu is empty"},
		"paths with a device":            {cfg: "menuentry a {\n search --label --set=root BOOT\n linux ($root)/vmlinuz root=/dev/vda1\n initrd ($root)/ucode (hd0,msdos2)/initrd\n}\n", want: "/vmlinuz"},
		"an initrd elsewhere":            {cfg: "menuentry a {\n linux (hd0,2)/vmlinuz root=/dev/vda1\n search --label --set=root rootfs\n initrd /initrd\n}\n", note: "which is not on partition 2"},
		"a kernel elsewhere":             {cfg: "menuentry a {\n linux (lvm/vg-boot)/vmlinuz root=/dev/vda1\n}\n", note: "a device that is not on this disk"},
		"a kernel that a program finds":  {cfg: "regexp --set=1:k (.*) x\nmenuentry a {\n linux $k root=/dev/vda1\n}\n", note: "which is not on partition"},
		"not understood":                 {cfg: "if true; then\n", note: "cannot be understood"},
		"another loader that is there":   {cfg: "menuentry a {\n search --label --set=root BOOT\n chainloader /ucode\n}\n"},
		"another loader that is not":     {cfg: "menuentry a {\n chainloader /EFI/none.efi\n}\n", note: "starts no Linux kernel"},
	} {
		r := newRig(t, c.cfg)
		found, err := r.kexec.Look(t.Context(), disk)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := found.Kernel
		if e, ok := app.AsError(found.Refused); ok {
			got = e.Reason
			if !strings.HasPrefix(e.Message, "vda ") || !strings.Contains(e.WayOut, "skipChecks") || strings.Contains(e.Message+e.WayOut, "kexec") {
				t.Errorf("%s: %v", name, e)
			}
		}
		notes := strings.Join(found.Notes, "; ")
		if got != c.want || (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) || notes != "" && !strings.Contains(notes, "vda") {
			t.Errorf("%s: %+v", name, found)
		}
		calls := strings.Join(r.calls, ", ")
		if strings.Contains(calls, "load") || strings.Count(calls, "unmount ") != strings.Count(calls, "mount ")/2 {
			t.Errorf("%s: %s", name, calls)
		}
	}
}

// What cannot be looked into may hold what starts: nothing is refused then.
func TestLookSaysWhatItCannotSee(t *testing.T) {
	r := newRig(t, "")
	r.mountErr["vda1"] = errors.New("bad superblock")
	found, err := r.kexec.Look(t.Context(), agentv1.DiskTarget{Serial: "OS1"})
	if err != nil || found.Refused != nil || len(found.Notes) != 1 || !strings.Contains(found.Notes[0], "not looked into: partition 1 (ext4, which cannot be mounted)") {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := r.kexec.Look(t.Context(), agentv1.DiskTarget{Serial: "X"}); err == nil {
		t.Error("a disk that this machine has not")
	}
}
