package disk

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// A disk that fails and is still there fails; one that is not there was pulled, and the message says so. Nothing is written
// to another disk in its place.
func TestPulledDisk(t *testing.T) {
	s := newSite(t, testRaw(9, 8<<20))
	renamed, other := sda(16<<20), sda(16<<20)
	renamed.Name = "sdc"
	other.Name, other.Serial, other.WWN = "sdb", "S2", "0x5000c50087654321"
	for name, c := range map[string]struct {
		left []agentv1.Disk
		err  error
		want string
		text string
	}{
		"still there":       {[]agentv1.Disk{sda(16 << 20), other}, nil, "disk-io", "sda"},
		"pulled":            {[]agentv1.Disk{other}, nil, "disk-gone", `sda (serial "S1") is gone`},
		"all are gone":      {nil, nil, "disk-gone", "is gone"},
		"back in another":   {[]agentv1.Disk{renamed, other}, nil, "disk-gone", "came back as sdc"},
		"nobody can tell":   {nil, errors.New("no sysfs"), "disk-io", "sda"},
		"another, its name": {[]agentv1.Disk{{Name: "sda", Serial: "S9", Bytes: 16 << 20, SectorSize: 512}}, nil, "disk-gone", "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			d := sda(16 << 20)
			r := newRig(t, s, d, other)
			r.cfg.Open = func(p string) (Device, error) {
				dev, err := Open(p)
				return &pulled{Device: dev, after: 3 << 20, pull: func() {
					r.disks = c.left
					r.cfg.Disks = func(context.Context) ([]agentv1.Disk, error) { return c.left, c.err }
				}}, err
			}
			_, err := r.Write(context.Background(), s.order(d), quiet)
			if reason(err) != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
			if e, _ := app.AsError(err); e == nil || e.WayOut == "" || e.Code != app.Unavailable {
				t.Errorf("%+v", e)
			}
			r.untouched(t, "sdb")
		})
	}
}

// pulled is a disk that is pulled at its first write behind an offset: from then on the kernel knows no such device.
type pulled struct {
	Device
	after int64
	pull  func()
	once  sync.Once
	out   atomic.Bool
}

func (p *pulled) WriteAt(b []byte, off int64) (int, error) {
	if off >= p.after {
		p.once.Do(p.pull)
		p.out.Store(true)
	}
	if p.out.Load() {
		return 0, syscall.ENODEV
	}
	return p.Device.WriteAt(b, off)
}

func (p *pulled) Sync() error {
	if p.out.Load() {
		return syscall.ENODEV
	}
	return p.Device.Sync()
}

func (p *pulled) Zero(off, n int64) error {
	if p.out.Load() {
		return syscall.ENODEV
	}
	return p.Device.Zero(off, n)
}
