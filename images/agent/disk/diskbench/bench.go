package diskbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// bench is an appliance's boot listener with images, and a machine's disk.
type bench struct {
	dir, zst, loop string
	store          *chunk.Store
	images         []benchImage
	size           int64 // of the disk
	server         *http.Server
	url            string
	wire           int64
}

type benchImage struct {
	index  *chunk.Index
	digest string
}

// newBench imports images, in order, and makes a disk that is 4 MiB larger than the largest. The caller closes it.
func newBench(dir string, images ...string) (b *bench, err error) {
	b = &bench{dir: dir}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.store, err = chunk.OpenStore(filepath.Join(dir, "packs"), filepath.Join(dir, "tmp"), slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	for _, path := range images {
		if err := b.importImage(path); err != nil {
			return nil, fmt.Errorf("importing %s: %w", path, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "disk"), nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(filepath.Join(dir, "disk"), b.size); err != nil {
		return nil, err
	}
	out, err := exec.Command("losetup", "--find", "--show", filepath.Join(dir, "disk")).Output()
	if err != nil {
		return nil, fmt.Errorf("making loop device: %w", err)
	}
	b.loop = strings.TrimSpace(string(out))
	return b, b.serve()
}

func (b *bench) importImage(path string) error {
	build, err := b.store.NewBuild()
	if err != nil {
		return err
	}
	defer build.Discard()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := build.Add(context.Background(), f, nil); err != nil {
		return err
	}
	enc, err := build.Index().Encode()
	if err != nil {
		return err
	}
	b.size = max(b.size, build.Index().RawBytes+4<<20)
	b.images = append(b.images, benchImage{build.Index(), chunk.Digest(enc)})
	at := filepath.Join(b.dir, "images", fmt.Sprint(len(b.images)-1))
	return build.Commit(func() error {
		return errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "index"), enc, 0o644))
	})
}

// compress makes of an image what a person would, by zstd -3.
func (b *bench) compress(ctx context.Context, image string) error {
	b.zst = filepath.Join(b.dir, "image.zst")
	if out, err := exec.CommandContext(ctx, "zstd", "-q", "-3", "-T0", image, "-o", b.zst).CombinedOutput(); err != nil {
		return fmt.Errorf("compressing: %w: %s", err, out)
	}
	return nil
}

func (b *bench) serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.url = "http://" + l.Addr().String()
	b.server = &http.Server{Handler: http.FileServer(http.Dir(b.dir))}
	go func() { _ = b.server.Serve(l) }()
	return nil
}

func (b *bench) close() {
	if b.server != nil {
		b.server.Close()
	}
	if b.loop != "" {
		_ = exec.Command("losetup", "-d", b.loop).Run()
	}
}

// dirty fills the target, so that neither way profits from holes in the file behind the loop device.
func (b *bench) dirty() error {
	f, err := os.OpenFile(filepath.Join(b.dir, "disk"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	block := bytes.Repeat([]byte{0xA5}, 1<<20)
	for off := int64(0); off < b.size; off += int64(len(block)) {
		if _, err := f.WriteAt(block[:min(b.size-off, int64(len(block)))], off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// write has the agent write image n, on a disk that may hold the images seeds.
func (b *bench) write(ctx context.Context, n int, seeds []int, tell func(agentv1.ProgressReport)) (*agentv1.WriteResult, error) {
	path := func(n int) string { return fmt.Sprintf("/images/%d/index", n) }
	d := agentv1.Disk{Name: filepath.Base(b.loop), Serial: "BENCH", Bytes: b.size, SectorSize: 512}
	w := disk.New(disk.Config{BootURLs: []string{b.url}, Log: slog.New(slog.DiscardHandler),
		Disks: func(context.Context) ([]agentv1.Disk, error) { return []agentv1.Disk{d}, nil }})
	order := agentv1.Write{Disk: agentv1.DiskTarget{Serial: "BENCH"}, IndexURL: path(n), IndexSHA256: b.images[n].digest, RawBytes: b.images[n].index.RawBytes}
	for _, s := range seeds {
		order.Seeds = append(order.Seeds, agentv1.Seed{IndexURL: path(s), IndexSHA256: b.images[s].digest})
	}
	return w.Write(ctx, order, tell)
}
