package wipe

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/agent/wipe/internal/erase"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// rig is a machine whose disks are files full of 0xA5.
type rig struct {
	*Wiper
	dir   string
	disks []agentv1.Disk
}

func newRig(t *testing.T, sizes ...int64) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir()}
	for i, n := range sizes {
		d := agentv1.Disk{Name: "sd" + string(rune('a'+i)), Serial: "S" + string(rune('1'+i)), Bytes: n, SectorSize: 512}
		if err := os.WriteFile(filepath.Join(r.dir, d.Name), bytes.Repeat([]byte{0xA5}, int(n)), 0o644); err != nil {
			t.Fatal(err)
		}
		r.disks = append(r.disks, d)
	}
	r.Wiper = New(Config{Disks: func(context.Context) ([]agentv1.Disk, error) { return r.disks, nil }, Log: slog.New(slog.DiscardHandler), DevDir: r.dir,
		Now: func() time.Time { return time.Unix(1, 0) }})
	return r
}

func (r *rig) wipe(names ...string) (*agentv1.WipeResult, error) {
	var o agentv1.Wipe
	for _, n := range names {
		o.Disks = append(o.Disks, agentv1.DiskTarget{Serial: n})
	}
	return r.Wipe(context.Background(), o, func(agentv1.ProgressReport) {})
}

func (r *rig) content(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *rig) wiped(t *testing.T, name string) {
	t.Helper()
	if b := r.content(t, name); len(bytes.Trim(b, "\x00")) != 0 {
		t.Errorf("%s is not all zeros", name)
	}
}

func (r *rig) untouched(t *testing.T, name string) {
	t.Helper()
	if b := r.content(t, name); len(bytes.Trim(b, "\xA5")) != 0 {
		t.Errorf("%s was written to", name)
	}
}

func reason(err error) string {
	if e, ok := app.AsError(err); ok {
		return e.Reason
	}
	return ""
}

// TestWipe compares whole disks of several sizes, and one that is not listed.
func TestWipe(t *testing.T) {
	r := newRig(t, 8<<20, 3<<20+512, 64<<10, 4096, 4<<20)
	var last agentv1.ProgressReport
	out, err := r.Wipe(context.Background(), agentv1.Wipe{Disks: []agentv1.DiskTarget{{Serial: "S1"}, {Serial: "S2"}, {Serial: "S3"}, {Serial: "S4"}}},
		func(p agentv1.ProgressReport) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"sda", "sdb", "sdc", "sdd"} {
		r.wiped(t, name)
		if d := out.Disks[i]; !d.Erased || d.Method != "discard+zero" || d.Sentinels == 0 || d.Bytes != r.disks[i].Bytes || d.Disk.Serial != r.disks[i].Serial {
			t.Errorf("%s: %+v", name, d)
		}
	}
	r.untouched(t, "sde")
	if out.Disks[0].Sentinels < sentinels || last.Done == 0 || last.Total != 11<<20+512+64<<10+4096 {
		t.Errorf("%d sentinels, progress %+v", out.Disks[0].Sentinels, last)
	}
}

// TestPlaces: sentinels never overlap, lie on the disk, and are at both ends.
func TestPlaces(t *testing.T) {
	for _, size := range []int64{4096, 4608, 8192, 1<<20 + 512, 100 << 20} {
		r := newRig(t, size)
		dev, err := disk.Open(filepath.Join(r.dir, "sda"))
		if err != nil {
			t.Fatal(err)
		}
		used := map[int64]bool{}
		tail := false
		for _, off := range (&target{dev: dev}).places() {
			for s := off; s < off+block; s += 512 {
				if used[s] || s >= size || off%512 != 0 {
					t.Errorf("size %d: sentinel at %d", size, off)
				}
				used[s] = true
			}
			tail = tail || off+block == size
		}
		dev.Close()
		if !used[0] && size >= 2*block || !tail {
			t.Errorf("size %d: the ends have no sentinel", size)
		}
	}
}

// fault is a disk with defects.
type fault struct {
	disk.Device
	zeroErr   error
	zeroLies  bool
	writeEIO  int64 // offset whose overwrite fails, once planted
	keep      int64 // offset that writes do not change, once planted
	drop      bool  // writes go nowhere
	planted   bool
	readBytes int64 // offset where reads fail, once planted
}

func (f *fault) Sync() error { f.planted = true; return f.Device.Sync() }

func (f *fault) Discard(off, n int64) error { return syscall.EOPNOTSUPP }

func (f *fault) Zero(off, n int64) error {
	if f.zeroErr != nil || f.zeroLies {
		return f.zeroErr
	}
	return f.Device.Zero(off, n)
}

func (f *fault) WriteAt(b []byte, off int64) (int, error) {
	if f.drop {
		return len(b), nil
	}
	inside := func(at int64) bool { return f.planted && at != 0 && off <= at && at < off+int64(len(b)) }
	if inside(f.writeEIO) {
		return 0, syscall.EIO
	}
	if inside(f.keep) {
		old, err := disk.Buffer(4096)
		if err != nil {
			return 0, err
		}
		defer disk.Free(old)
		if _, err := f.Device.ReadAt(old, f.keep); err != nil {
			return 0, err
		}
		if _, err := f.Device.WriteAt(b, off); err != nil {
			return 0, err
		}
		return len(b), func() error { _, err := f.Device.WriteAt(old, f.keep); return err }()
	}
	return f.Device.WriteAt(b, off)
}

func (f *fault) ReadAt(b []byte, off int64) (int, error) {
	if f.planted && f.readBytes != 0 && off <= f.readBytes && f.readBytes < off+int64(len(b)) {
		return 0, syscall.EIO
	}
	return f.Device.ReadAt(b, off)
}

// TestFaults: a disk is called erased only when it is.
func TestFaults(t *testing.T) {
	last := int64(6<<20 - 4096) // the last block: always a sentinel
	for name, c := range map[string]struct {
		f      fault
		method string // "" when it must fail
		text   string // of the note then
	}{
		"no zeroing command":         {fault{zeroErr: syscall.EOPNOTSUPP}, "overwrite", ""},
		"zeroing fails, writing not": {fault{zeroErr: syscall.EIO}, "discard+zero", ""},
		"zeroing does nothing":       {fault{zeroLies: true}, "overwrite", ""},
		"bad sector":                 {fault{zeroErr: syscall.EIO, writeEIO: 5 << 20}, "", "at offset 4194304"},
		"a block never changes":      {fault{zeroLies: true, keep: last}, "", "still gives back old bytes"},
		"writes go nowhere":          {fault{drop: true}, "", "no wipe of it can be proven"},
		"unreadable afterwards":      {fault{readBytes: last}, "", "reading"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 6<<20)
			r.cfg.Open = func(p string) (disk.Device, error) {
				dev, err := disk.Open(p)
				c.f.Device = dev
				return &c.f, err
			}
			out, err := r.wipe("S1")
			if err != nil {
				t.Fatal(err)
			}
			if c.method == "" {
				if d := out.Disks[0]; d.Erased || d.Method != "" || !strings.Contains(d.Note, c.text) || d.Ended.IsZero() {
					t.Errorf("%+v", d)
				}
				return
			}
			r.wiped(t, "sda")
			if d := out.Disks[0]; !d.Erased || d.Method != c.method {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestRefusals: when one disk of an order cannot be wiped, none is touched.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		order []string
		want  string
	}{
		"nothing":  {nil, "no-disks"},
		"unknown":  {[]string{"S1", "X"}, "disk-not-found"},
		"twice":    {[]string{"S1", "S1"}, "disk-named-twice"},
		"in use":   {[]string{"S1", "S2"}, "disk-in-use"},
		"readonly": {[]string{"S1", "S3"}, "disk-read-only"},
	} {
		r := newRig(t, 1<<20, 1<<20, 1<<20)
		r.disks[2].ReadOnly = true
		r.cfg.Open = func(p string) (disk.Device, error) {
			if filepath.Base(p) == "sdb" {
				return nil, disk.ErrInUse
			}
			return disk.Open(p)
		}
		if _, err := r.wipe(c.order...); reason(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		for _, d := range r.disks {
			r.untouched(t, d.Name)
		}
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t, 1<<20)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Wipe(ctx, agentv1.Wipe{Disks: []agentv1.DiskTarget{{Serial: "S1"}}}, func(agentv1.ProgressReport) {}); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// drive is a disk with methods of its own over a file.
type drive struct {
	can    erase.Ladder
	closed int
}

func (d *drive) Ladder() erase.Ladder { return d.can }

func (d *drive) Close() error { d.closed++; return nil }

// scramble overwrites a file with noise, as a cryptographic erase looks from outside, but for the bytes from keep on.
func scramble(t *testing.T, path string, keep int64) erase.Method {
	return erase.Method{Name: "scramble", Run: func(_ context.Context, p erase.Progress) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return err
		}
		defer f.Close()
		noise := make([]byte, keep)
		_, _ = rand.Read(noise)
		p(0.5, "half of it")
		if _, err := f.WriteAt(noise, 0); err != nil {
			return err
		}
		p(1, "")
		return f.Sync()
	}}
}

// TestLadder: the disk's own methods come first, and each of them must be proven.
func TestLadder(t *testing.T) {
	const size = 6 << 20
	fails := erase.Method{Name: "fails", Run: func(context.Context, erase.Progress) error { return errors.New("the drive says no") }}
	lies := erase.Method{Name: "lies", Run: func(context.Context, erase.Progress) error { return nil }}
	for name, c := range map[string]struct {
		methods func(path string) []erase.Method
		method  string
		notes   []string
	}{
		"works":            {func(p string) []erase.Method { return []erase.Method{scramble(t, p, size), fails} }, "scramble", nil},
		"fails":            {func(p string) []erase.Method { return []erase.Method{fails, scramble(t, p, size)} }, "scramble", []string{"fails: the drive says no"}},
		"lies":             {func(p string) []erase.Method { return []erase.Method{lies, scramble(t, p, size)} }, "scramble", []string{"lies: a sentinel at offset 0"}},
		"half done":        {func(p string) []erase.Method { return []erase.Method{scramble(t, p, size-64)} }, "discard+zero", []string{"scramble: a sentinel at offset 6291392"}},
		"has none":         {func(string) []erase.Method { return nil }, "discard+zero", nil},
		"all of them fail": {func(string) []erase.Method { return []erase.Method{lies, fails} }, "discard+zero", []string{"lies: ", "fails: "}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, size)
			d := &drive{can: erase.Ladder{Notes: []string{"it has no other method"}}}
			r.cfg.Drive = func(path string, _ agentv1.Disk) (Drive, error) {
				d.can.Methods = c.methods(path)
				return d, nil
			}
			out, err := r.wipe("S1")
			if err != nil {
				t.Fatal(err)
			}
			got := out.Disks[0]
			if !got.Erased || got.Method != c.method || got.Sentinels == 0 || d.closed != 1 {
				t.Errorf("%+v, closed %d times", got, d.closed)
			}
			for _, n := range append(c.notes, "it has no other method") {
				if !strings.Contains(got.Note, n) {
					t.Errorf("the note %q lacks %q", got.Note, n)
				}
			}
			b := r.content(t, "sda")
			if len(bytes.Trim(append(b[:edge:edge], b[size-edge:]...), "\x00")) != 0 {
				t.Error("the disk's ends are not clear")
			}
			if noise := bytes.Count(b[edge:size-edge], []byte{0}) < (size-2*edge)/2; noise != (c.method == "scramble") {
				t.Errorf("the disk's middle is noise: %v", noise)
			}
		})
	}
}

// TestDriveThatCannotBeAsked: without its commands the disk is wiped as any other, and the note says so.
func TestDriveThatCannotBeAsked(t *testing.T) {
	r := newRig(t, 1<<20)
	r.cfg.Drive = func(string, agentv1.Disk) (Drive, error) { return nil, syscall.EPERM }
	out, err := r.wipe("S1")
	if err != nil {
		t.Fatal(err)
	}
	if d := out.Disks[0]; !d.Erased || d.Method != "discard+zero" || !strings.Contains(d.Note, "own erase commands cannot be used") {
		t.Errorf("%+v", d)
	}
}
