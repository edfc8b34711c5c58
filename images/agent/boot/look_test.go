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
		disk agentv1.DiskTarget
		want string // kernel or reason
	}{
		"an entry":                         {separate, disk, "/vmlinuz"},
		"no entry":                         {"", disk, "no-boot-entry"},
		"a kernel that is not there":       {strings.Replace(separate, "/vmlinuz", "/vmlinuz-6.1", 1), disk, "no-boot-entry"},
		"an initrd that is not there":      {strings.Replace(separate, "/initrd\n", "/initrd-6.1\n", 1), disk, "no-boot-entry"},
		"no root":                          {strings.Replace(separate, "root=LABEL=rootfs ", "", 1), disk, "no-root-argument"},
		"the root of who made the image":   {strings.Replace(separate, "LABEL=rootfs", "/dev/loop0p1", 1), disk, "root-elsewhere"},
		"a disk that this machine has not": {separate, agentv1.DiskTarget{Serial: "X"}, "disk-not-found"},
	} {
		r := newRig(t, c.cfg)
		title, kernel, err := r.kexec.Look(t.Context(), c.disk)
		got := kernel
		if e, ok := app.AsError(err); ok {
			got = e.Reason
		}
		if got != c.want || err == nil && title != "a" {
			t.Errorf("%s: %q %q %v", name, title, kernel, err)
		}
		calls := strings.Join(r.calls, ", ")
		if strings.Contains(calls, "load") || strings.Count(calls, "unmount ") != strings.Count(calls, "mount ")/2 {
			t.Errorf("%s: %s", name, calls)
		}
	}
	r := newRig(t, separate)
	r.mountErr["vda1"], r.mountErr["vda2"] = errors.New("bad superblock"), errors.New("bad superblock")
	if _, _, err := r.kexec.Look(t.Context(), disk); err == nil {
		t.Error("an entry on a disk that cannot be mounted")
	}
}
