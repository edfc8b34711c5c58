package deploy

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// An image whose root cannot grow is refused before the first write, with image, disk and the way out, unless it need not grow.
func TestARootThatCannotGrow(t *testing.T) {
	mib := int64(1) << 20
	root := app.Partition{Number: 2, Start: 100 * mib, Size: 2 * gib, FS: "ext4"}
	swap := app.Partition{Number: 3, Start: root.Start + root.Size, Size: gib, FS: "swap"}
	esp := app.Partition{Number: 1, Start: mib, Size: 99 * mib, FS: "vfat"}
	for name, c := range map[string]struct {
		parts []app.Partition
		bytes int64
		spec  app.DeploySpec
		ok    bool
	}{
		"root last":                    {parts: []app.Partition{esp, root}, bytes: 100 * gib, ok: true},
		"swap behind the root":         {parts: []app.Partition{esp, root, swap}, bytes: 100 * gib},
		"the same with user data":      {parts: []app.Partition{esp, root, swap}, bytes: 100 * gib, spec: app.DeploySpec{UserData: "#cloud-config\nhostname: a\n"}},
		"a script for user data":       {parts: []app.Partition{esp, root, swap}, bytes: 100 * gib, spec: app.DeploySpec{UserData: "#!/bin/sh\ngrowpart: {mode: off}\n"}},
		"the root is made later":       {parts: []app.Partition{esp, {Number: 3, Name: "BOOT", Start: root.Start, Size: gib, FS: "xfs"}, {Number: 4, Name: "META", Start: root.Start + gib, Size: mib}}, bytes: 100 * gib, ok: true},
		"a boot partition alone":       {parts: []app.Partition{esp, {Number: 3, Type: "bc13c2ff-59e6-4262-a352-b275fd6f7172", Start: root.Start, Size: gib, FS: "ext4"}, swap}, bytes: 100 * gib, ok: true},
		"growpart is off":              {parts: []app.Partition{esp, root, swap}, bytes: 100 * gib, spec: app.DeploySpec{UserData: "#cloud-config\ngrowpart:\n  mode: off\n"}, ok: true},
		"growpart is off, as text":     {parts: []app.Partition{esp, root, swap}, bytes: 100 * gib, spec: app.DeploySpec{UserData: "#cloud-config\ngrowpart: {mode: \"off\"}\n"}, ok: true},
		"the checks are skipped":       {parts: []app.Partition{esp, root, swap}, bytes: 100 * gib, spec: app.DeploySpec{SkipChecks: true}, ok: true},
		"a disk as large as the image": {parts: []app.Partition{esp, root, swap}, bytes: 4 * gib, ok: true},
		"no root that is known":        {parts: []app.Partition{esp, {Number: 2, Start: root.Start, Size: root.Size}, swap}, bytes: 100 * gib, ok: true},
	} {
		img := &app.Image{Name: "debian-12", Layout: app.Layout{Table: "gpt", Partitions: c.parts}}
		d := disk("sda", "A", "", c.bytes)
		err := roomToGrow(img, &d, &c.spec)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if e, ok := app.AsError(err); err != nil && (!ok || e.Reason != "root-cannot-grow" || e.Field != "image" || !strings.Contains(e.Message, "image debian-12") || !strings.Contains(e.Message, "disk sda") || !strings.Contains(e.WayOut, "skipChecks")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
