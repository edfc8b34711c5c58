package boot

import (
	"context"
	"errors"
	"fmt"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Look tells which boot entry a disk starts by default, and its kernel, which is there and has a root file system named. It
// loads nothing and leaves nothing mounted. What only another boot loader can read, such as Windows', is an error here.
func (k *Kexec) Look(ctx context.Context, target agentv1.DiskTarget) (title, kernel string, err error) {
	disks, err := k.cfg.Disks(ctx)
	if err != nil {
		return "", "", fmt.Errorf("listing disks: %w", err)
	}
	d, err := disk.Match(disks, target)
	if err != nil {
		return "", "", err
	}
	parts, release, err := k.mountAll(d)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	e, err := find(parts, k.cfg.Firmware, k.cfg.Log)
	if err != nil {
		return "", "", err
	}
	for _, name := range append([]string{e.kernel}, e.initrds...) {
		dir, size, err := e.part.stat(name)
		if err != nil || dir || size == 0 {
			return "", "", app.Errorf(app.Unsupported, "no-boot-entry", "the default boot entry %q starts %q, which is not there", clip(e.title, 80), clip(name, 200))
		}
	}
	switch root := foreignRoot(e.args); {
	case !hasRoot(e.args):
		return "", "", app.Errorf(app.Unsupported, "no-root-argument", "the default boot entry %q names no root file system", clip(e.title, 80))
	case root != "":
		return "", "", app.Errorf(app.Unsupported, "root-elsewhere", "the default boot entry %q has its root on %s, which only the machine that made the image had", clip(e.title, 80), clip(root, 80))
	}
	return e.title, e.kernel, nil
}
