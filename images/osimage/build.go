package osimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Config says what to build and where.
type Config struct {
	Options
	Cache string       // directory that keeps built images; made if missing; must allow device nodes and many GiB
	Log   *slog.Logger // default: discard
	Step  func(string) // told each step of a build as it begins; may be nil
}

// Image is a built image.
type Image struct {
	Path     string    `json:"-"`        // image.raw or image.raw.zst
	Options  Options   `json:"options"`  // with defaults filled in; without the root password
	RootUUID string    `json:"rootUuid"` // of the root file system
	Kernel   string    `json:"kernel"`   // version, as uname -r says it
	RawBytes int64     `json:"rawBytes"` // size of the disk
	Used     int64     `json:"usedBytes"`
	Built    time.Time `json:"built"`
	Packages []string  `json:"packages"` // "name version" of everything installed, sorted
}

const (
	manifestFile = "manifest.json"
	rawFile      = "image.raw"
)

// Build gives the image for cfg: from the cache when these options were built before, else built now. A failed or cancelled
// build leaves nothing in the cache.
func Build(ctx context.Context, cfg Config) (*Image, error) {
	cfg.Options = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cache, err := filepath.Abs(cfg.Cache)
	if err != nil {
		return nil, fmt.Errorf("resolving the cache directory: %w", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w", err)
	}
	dir := filepath.Join(cache, cfg.key())
	if img, err := load(dir); err == nil {
		return img, nil
	}
	if err := ready(); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if img, err := load(dir); err == nil { // somebody else built it meanwhile
		return img, nil
	}
	return cfg.build(ctx, dir)
}

// build makes the image in a directory beside dir and renames it when it is whole.
func (cfg Config) build(ctx context.Context, dir string) (*Image, error) {
	work := dir + ".building"
	if err := os.RemoveAll(work); err != nil { // of a killed build; this one holds the lock
		return nil, fmt.Errorf("clearing a killed build: %w", err)
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, fmt.Errorf("making the work directory: %w", err)
	}
	defer os.RemoveAll(work)
	root, raw := filepath.Join(work, "root"), filepath.Join(work, rawFile)
	var l loaders
	steps := []struct {
		name string
		run  func() error
	}{
		{"installing packages", func() error { return bootstrap(ctx, cfg.Options, root) }},
		{"configuring", func() error { return configure(ctx, cfg.Options, root) }},
		{"installing GRUB", func() (err error) { l, err = installGRUB(ctx, cfg.Options, root); return err }},
		{"writing the manifest", func() error { return cfg.writeManifest(ctx, work, root) }},
		{"assembling the disk", func() error { return assemble(ctx, cfg.Options, raw, root, l) }},
		{"measuring", func() error { return amend(work, raw) }},
		{"compressing", func() error { return cfg.compress(raw) }},
		{"removing the work tree", func() error { return os.RemoveAll(root) }},
		{"moving it into the cache", func() error { return errors.Join(os.RemoveAll(dir), os.Rename(work, dir)) }},
	}
	for _, s := range steps {
		if cfg.Step != nil {
			cfg.Step(s.name)
		}
		begun := time.Now()
		if err := s.run(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		cfg.Log.Info("image step done", "step", s.name, "seconds", time.Since(begun).Seconds())
	}
	return load(dir)
}

// load reads a finished image from the cache.
func load(dir string) (*Image, error) {
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, err
	}
	var img Image
	if err := json.Unmarshal(b, &img); err != nil {
		return nil, err
	}
	img.Path = filepath.Join(dir, rawFile)
	if img.Options.Zstd {
		img.Path += ".zst"
	}
	if _, err := os.Stat(img.Path); err != nil {
		return nil, err
	}
	return &img, nil
}

// writeManifest records what the image is made of.
func (cfg Config) writeManifest(ctx context.Context, work, root string) error {
	kernels, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("the image has %d kernels, want one", len(kernels))
	}
	list, err := command{root: root, args: []string{"/usr/bin/dpkg-query", "-W", "-f", "${Package} ${Version}\n"}}.run(ctx)
	if err != nil {
		return err
	}
	o := cfg.Options
	o.RootPassword = ""
	return save(work, Image{
		Options: o, RootUUID: o.uuid("root"), Kernel: strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-"),
		RawBytes: int64(o.MiB) * mib * sector, Built: time.Now().UTC(), Packages: strings.Split(strings.TrimSpace(list), "\n"),
	})
}

// amend adds what is known once the disk is assembled.
func amend(work, raw string) error {
	var img Image
	b, err := os.ReadFile(filepath.Join(work, manifestFile))
	if err == nil {
		err = json.Unmarshal(b, &img)
	}
	if err == nil {
		img.Used, err = allocated(raw)
	}
	if err != nil {
		return err
	}
	return save(work, img)
}

func save(dir string, img Image) error {
	b, err := json.MarshalIndent(img, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), append(b, '\n'), 0o644)
}

// compress replaces the raw file by a zstd stream when that is asked for.
func (cfg Config) compress(raw string) (err error) {
	if !cfg.Zstd {
		return nil
	}
	in, err := os.Open(raw)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(raw+".zst", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	enc, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	if _, err := io.Copy(enc, in); err != nil {
		return errors.Join(err, enc.Close())
	}
	return errors.Join(enc.Close(), os.Remove(raw))
}

// lock takes an exclusive lock on a file, waiting for another build of the same image.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("taking the build lock: %w", err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("waiting for another build: %w", context.Cause(ctx)), f.Close())
		}
	}
}
