package flat

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat/internal/ext4"
)

// DefaultFree is how many bytes of the root are left for new files, where a deployed system does not grow its root itself.
const DefaultFree = 1 << 30

// madeAt is the time of everything that no archive brings, in seconds since 1970: 1 January 2020. One that moved would make
// the disk another one each time.
const madeAt = 1_577_836_800

// The most that files may hold: of what was delivered, once they are more than the floor, and together. A sparse file or a
// compressed layer can claim anything.
const (
	contentFloor = 8 << 30
	contentRatio = 200
	archiveRoom  = 4 << 30 // bytes of archives beside the content: headers and padding of maxEntries files, and entries that layers hide
)

// Config of a Disk. All fields but Free are required.
type Config struct {
	Image     string // its name, for messages
	Layers    []Layer
	Whiteouts bool   // the layers are an OCI image's
	Seed      []byte // what UUIDs derive from: a digest of the layers
	Delivered int64  // bytes the layers came in
	MaxDisk   int64  // bytes the disk may have
	Free      int64  // 0: DefaultFree
	Loaders   Loaders
}

// Disk is a disk image that is read once, from its start to its end.
type Disk struct {
	size    int64
	regions []region // what is not all zeros, in order
	feed    feed
	pos     int64
	made    []byte // by regions[0].bytes, once it was needed
}

// region is a part of the disk.
type region struct {
	off, len int64
	bytes    func() []byte // at most len; zeros follow
	file     *ext4.Inode   // or the file it is of
	at       int64         // offset in it
}

// New reads the layers once and decides where everything lies. The context is that of the reads to come as well. The caller
// closes the disk.
func New(ctx context.Context, cfg Config) (*Disk, error) {
	if cfg.Free == 0 {
		cfg.Free = DefaultFree
	}
	content := min(max(contentFloor, contentRatio*cfg.Delivered), cfg.MaxDisk)
	r := reader{tree: newTree(cfg.Image, madeAt), ctx: ctx, whiteout: cfg.Whiteouts, limits: limits{content, content + archiveRoom, "far more than was delivered"}}
	if r.limits.content == cfg.MaxDisk {
		r.limits.why = "the limit of a disk"
	}
	for n, l := range cfg.Layers {
		if err := r.layer(n, l); err != nil {
			return nil, err
		}
	}
	n, err := r.system(derive(cfg.Seed))
	if err != nil {
		return nil, err
	}
	fs, err := r.plan(cfg, n)
	if err != nil {
		return nil, err
	}
	d := &Disk{size: rootStart*sector + fs.Size() + tailSectors*sector, feed: feed{ctx: ctx, layers: cfg.Layers}}
	if d.size > cfg.MaxDisk {
		return nil, app.Errorf(app.TooLarge, "image-too-large", "image %s would have %d bytes, the limit is %d", cfg.Image, d.size, cfg.MaxDisk).Do("leave out what a machine does not need to boot, or raise the limit")
	}
	if err := d.frame(cfg, n); err != nil {
		return nil, fmt.Errorf("laying out image %q: %w", cfg.Image, err)
	}
	for _, p := range fs.Regions() {
		d.add(region{rootStart*sector + p.Off, p.Len, p.Bytes, p.File, p.At})
	}
	_, tail, err := table(cfg.Seed, cfg.Loaders.Boot, d.size)
	if err != nil {
		return nil, fmt.Errorf("laying out image %q: %w", cfg.Image, err)
	}
	d.add(region{off: d.size - int64(len(tail)), len: int64(len(tail)), bytes: func() []byte { return tail }})
	return d, nil
}

// plan lays out the root.
func (t *tree) plan(cfg Config, n names) (*ext4.FS, error) {
	if lost := t.root.Entries["lost+found"]; lost != nil && !lost.IsDir() {
		return nil, t.refuse("lost+found", "bad-entry", "is no directory, as a file system needs it").Do("remove it")
	}
	o := ext4.Options{HashSeed: uuidBytes(cfg.Seed, "hash"), Label: n.label, Free: cfg.Free, Sec: madeAt}
	b, err := hex.DecodeString(strings.ReplaceAll(n.root, "-", ""))
	if err != nil {
		return nil, fmt.Errorf("reading the UUID %q: %w", n.root, err)
	}
	copy(o.UUID[:], b)
	fs, err := ext4.Plan(t.root, o)
	if err != nil {
		return nil, app.Errorf(app.InvalidInput, "root-not-laid-out", "the root file system of image %s has no place on a disk: %w", t.image, err).Do("remove what it names from the archive")
	}
	return fs, nil
}

// frame adds what lies before the root.
func (d *Disk) frame(cfg Config, n names) error {
	head, _, err := table(cfg.Seed, cfg.Loaders.Boot, d.size)
	if err != nil {
		return err
	}
	core, err := embed(cfg.Loaders.Core)
	if err != nil {
		return err
	}
	system, err := esp(cfg.Loaders.EFI, n.esp)
	if err != nil {
		return err
	}
	for _, p := range []struct {
		off int64
		b   []byte
	}{{0, head}, {biosStart, core}, {espStart, system}} {
		d.add(region{off: p.off * sector, len: int64(len(p.b)), bytes: func() []byte { return p.b }})
	}
	return nil
}

func (d *Disk) add(r region) { d.regions = append(d.regions, r) }

// Size of the disk in bytes.
func (d *Disk) Size() int64 { return d.size }

// Read gives the next bytes of the disk.
func (d *Disk) Read(b []byte) (int, error) {
	if err := d.feed.ctx.Err(); err != nil {
		return 0, context.Cause(d.feed.ctx)
	}
	b = b[:min(int64(len(b)), d.size-d.pos)]
	if len(b) == 0 && d.pos == d.size {
		return 0, d.end()
	}
	n, err := d.fill(b)
	d.pos += int64(n)
	return n, err
}

// end checks what is left of the layers, before it says that the disk is whole.
func (d *Disk) end() error {
	if err := d.feed.finish(); err != nil {
		return err
	}
	return io.EOF
}

// fill gives what lies at the position: zeros up to the next region, or bytes of one.
func (d *Disk) fill(b []byte) (int, error) {
	if len(d.regions) == 0 {
		clear(b)
		return len(b), nil
	}
	r := &d.regions[0]
	if d.pos < r.off {
		b = b[:min(int64(len(b)), r.off-d.pos)]
		clear(b)
		return len(b), nil
	}
	at := d.pos - r.off
	b = b[:min(int64(len(b)), r.len-at)]
	if r.file != nil {
		if err := d.feed.read(r.file, r.at+at, b); err != nil {
			return 0, err
		}
	} else {
		if d.made == nil {
			d.made = r.bytes()
		}
		n := 0
		if at < int64(len(d.made)) {
			n = copy(b, d.made[at:])
		}
		clear(b[n:])
	}
	if at+int64(len(b)) == r.len {
		d.regions, d.made = d.regions[1:], nil
	}
	return len(b), nil
}

// SkipHole moves over zeros, as package chunk asks a sparse source to: whole blocks of 4096 bytes.
func (d *Disk) SkipHole() (int64, error) {
	next := d.size
	if len(d.regions) > 0 {
		next = d.regions[0].off
	}
	if d.pos%ext4.BlockSize != 0 || next <= d.pos {
		return 0, nil
	}
	n := (next - d.pos) / ext4.BlockSize * ext4.BlockSize
	d.pos += n
	return n, nil
}

// Close ends the reading.
func (d *Disk) Close() error { return d.feed.close() }
