package ramdisk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
)

// MaxBytes is the most that kernel and initramfs may take together without firmware, in bytes.
const MaxBytes = 30_000_000

// Config of one build.
type Config struct {
	KernelDeb    string   // path of a linux-image-*-amd64 package
	FirmwareDebs []string // paths of firmware-* packages; only files that a carried driver may ask for are taken
	Flavour      string   // Server (also the meaning of "") or Lab
	Modules      []string // instead of the flavour's list
	Agent        *Agent   // from LoadAgent or AgentFrom; must not be nil
	Loader       *Loader  // copied beside the kernel; may be nil
	Stub         *Stub    // likewise
	Out          string   // directory, made when missing; the manifest is written last
	CacheDir     string   // keeps compressed drivers between builds; "" keeps nothing
	Level        int      // of zstd, 1 to 22; 0 is DefaultLevel

	Progress func(line string) // told each step with its figures; may be nil
}

func (cfg *Config) say(format string, args ...any) {
	if cfg.Progress != nil {
		cfg.Progress(fmt.Sprintf(format, args...))
	}
}

// Validate reports every problem of the configuration at once.
func (cfg *Config) Validate() error {
	var errs []error
	if cfg.KernelDeb == "" {
		errs = append(errs, app.Invalid("kernelDeb", "no kernel package is given").Do("give Debian's linux-image-*-amd64 package, or have it downloaded"))
	}
	if cfg.Agent == nil {
		errs = append(errs, app.Invalid("agent", "no program for the ramdisk is given").Do("build it: make ramdisk"))
	}
	if cfg.Out == "" {
		errs = append(errs, app.Invalid("out", "no output directory is given"))
	}
	if cfg.Level < 0 || cfg.Level > 22 {
		errs = append(errs, app.Invalid("level", "zstd has no level %d", cfg.Level).Do("use 1 to 22, or 0 for %d", DefaultLevel))
	}
	if _, err := cfg.modules(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (cfg *Config) flavour() string {
	switch {
	case cfg.Modules != nil:
		return "custom"
	case cfg.Flavour == "":
		return Server
	}
	return cfg.Flavour
}

func (cfg *Config) modules() ([]string, error) {
	if cfg.Modules != nil {
		return cfg.Modules, nil
	}
	return ModuleList(cfg.flavour())
}

// Build writes vmlinuz, initramfs.zst, the loader's files and manifest.json into cfg.Out. Files appear whole or not at
// all. The same configuration and inputs give the same bytes wherever the same zstd program is installed.
func Build(ctx context.Context, cfg Config) (*Manifest, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	flavour := cfg.flavour()
	var err error
	if cfg.Modules, err = cfg.modules(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Out, 0o755); err != nil {
		return nil, fmt.Errorf("making the output directory: %w", err)
	}
	tmp, err := os.MkdirTemp(cfg.Out, ".build-*")
	if err != nil {
		return nil, fmt.Errorf("making a work directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	if cfg.CacheDir == "" {
		cfg.CacheDir = tmp
	} else if err := os.MkdirAll(cfg.CacheDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w", err)
	}
	z := newCompressor(cfg.Level)
	d, err := buildDrivers(ctx, &cfg, z)
	if err != nil {
		return nil, err
	}
	if err := assemble(ctx, &cfg, z, d, tmp); err != nil {
		return nil, err
	}
	m := newManifest(&cfg, d, flavour, z)
	if err := publish(&cfg, m, tmp); err != nil {
		return nil, err
	}
	cfg.say("ramdisk: %s, kernel and initramfs %d bytes, in %s", flavour, m.BootBytes(), cfg.Out)
	return m, nil
}

// assemble writes kernel, initramfs and loaders to the work directory.
func assemble(ctx context.Context, cfg *Config, z compressor, d *drivers, tmp string) error {
	root, err := buildRoot(ctx, cfg, z)
	if err != nil {
		return err
	}
	n, err := writeFile(filepath.Join(tmp, InitramfsFile), func(w io.Writer) error {
		return errors.Join(copyFile(w, filepath.Join(d.dir, driversArchive)), copyFile(w, root))
	})
	if err != nil {
		return err
	}
	cfg.say("initramfs: %d bytes", n)
	if _, err := writeFile(filepath.Join(tmp, KernelFile), func(w io.Writer) error {
		return copyFile(w, filepath.Join(d.dir, KernelFile))
	}); err != nil {
		return err
	}
	if cfg.Stub != nil {
		if err := cfg.Stub.copyTo(tmp); err != nil {
			return err
		}
	}
	if cfg.Loader == nil {
		return nil
	}
	return cfg.Loader.copyTo(tmp)
}

// buildRoot makes the frame with the root directory and the busybox, or finds it in the cache, which holds one: the
// flavours share it.
func buildRoot(ctx context.Context, cfg *Config, z compressor) (string, error) {
	a := newArchive()
	cfg.Agent.place(a)
	h := sha256.New()
	raw, err := a.write(h)
	if err != nil {
		return "", err
	}
	fmt.Fprint(h, z)
	name := filepath.Join(cfg.CacheDir, "root-"+hex.EncodeToString(h.Sum(nil)[:8])+".zst")
	if _, err := os.Stat(name); err == nil {
		cfg.say("agent and commands: from the cache")
		return name, nil
	}
	old, err := filepath.Glob(filepath.Join(cfg.CacheDir, "root-*.zst"))
	if err != nil {
		return "", fmt.Errorf("looking through the cache: %w", err)
	}
	for _, o := range old {
		if err := os.Remove(o); err != nil {
			return "", fmt.Errorf("emptying the cache: %w", err)
		}
	}
	n, err := writeFile(name+".tmp", func(w io.Writer) error {
		return z.compress(ctx, w, func(w io.Writer) error {
			_, err := a.write(w)
			return err
		})
	})
	if err != nil {
		return "", err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return "", fmt.Errorf("keeping the compressed root: %w", err)
	}
	cfg.say("agent and commands: %d bytes, %d compressed (%s)", raw, n, z)
	return name, nil
}

func copyFile(w io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening %q: %w", name, err)
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		return fmt.Errorf("copying %q: %w", name, err)
	}
	return nil
}

func newManifest(cfg *Config, d *drivers, flavour string, z compressor) *Manifest {
	sum := sha256.Sum256(cfg.Agent.Binary)
	m := &Manifest{
		Format: ManifestFormat, Flavour: flavour, Compressor: z.String(), Kernel: d.Kernel, Modules: d.Modules, Absent: d.Absent, Firmware: d.Firmware,
		Agent: AgentInfo{Bytes: int64(len(cfg.Agent.Binary)), SHA256: hex.EncodeToString(sum[:]), Go: cfg.Agent.Go, Commands: cfg.Agent.Commands},
		Parts: slices.Concat(d.Parts, cfg.Agent.Parts),
	}
	if cfg.Loader != nil {
		m.Parts = append(m.Parts, cfg.Loader.Part)
	}
	if cfg.Stub != nil {
		m.Parts = append(m.Parts, cfg.Stub.Part)
	}
	return m
}

// publish measures the files, moves them into place and writes the manifest after them.
func publish(cfg *Config, m *Manifest, tmp string) error {
	names := []string{KernelFile, InitramfsFile}
	if cfg.Loader != nil {
		for _, f := range cfg.Loader.Files {
			names = append(names, f.Name)
		}
	}
	if cfg.Stub != nil {
		names = append(names, StubFile)
	}
	slices.SortFunc(names, strings.Compare)
	for _, n := range names {
		i, err := describePath(n, filepath.Join(tmp, n))
		if err != nil {
			return err
		}
		m.Files = append(m.Files, i)
	}
	doc, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(tmp, ManifestFile), append(doc, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	for _, n := range append(names, ManifestFile) {
		if err := os.Rename(filepath.Join(tmp, n), filepath.Join(cfg.Out, n)); err != nil {
			return fmt.Errorf("moving %s into place: %w", n, err)
		}
	}
	return nil
}
