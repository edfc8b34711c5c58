package ramdisk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/ramdisk/internal/deb"
	"github.com/better-compute/bcd/images/ramdisk/internal/kmod"
)

// driversFormat is part of a cache key: raise it when the same inputs shall give other bytes.
const driversFormat = "1"

// Names inside a drivers directory.
const (
	driversArchive = "drivers.zst"
	driversInfo    = "drivers.json"
)

// drivers is the part of the output that follows from packages alone: kernel, modules, firmware. It is a directory with
// vmlinuz, driversArchive and driversInfo.
type drivers struct {
	Kernel   KernelInfo     `json:"kernel"`
	Modules  []ModuleInfo   `json:"modules"`
	Absent   []string       `json:"absent,omitempty"`
	Firmware []FirmwareInfo `json:"firmware"`
	Parts    []Part         `json:"parts"`

	dir string
}

// buildDrivers makes the drivers directory, or finds it in the cache under a key of all that goes in.
func buildDrivers(ctx context.Context, cfg *Config, z compressor) (*drivers, error) {
	key, sums, err := driversKey(ctx, cfg, z)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.CacheDir, "drivers-"+key[:16])
	if d, err := loadDrivers(dir); err == nil {
		cfg.say("drivers: %s %s, %d modules, from the cache", d.Kernel.Package, d.Kernel.Version, len(d.Modules))
		return d, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	tmp, err := os.MkdirTemp(cfg.CacheDir, "drivers-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("making a directory for drivers: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := makeDrivers(ctx, cfg, z, sums, tmp); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return nil, fmt.Errorf("keeping the drivers: %w", err)
	}
	return loadDrivers(dir)
}

func loadDrivers(dir string) (*drivers, error) {
	b, err := os.ReadFile(filepath.Join(dir, driversInfo))
	if err != nil {
		return nil, fmt.Errorf("reading the drivers: %w", err)
	}
	d := &drivers{dir: dir}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("decoding the drivers in %q: %w", dir, err)
	}
	return d, nil
}

// driversKey hashes the packages, the list and the way of compressing; sums are the packages' digests by path.
func driversKey(ctx context.Context, cfg *Config, z compressor) (string, map[string]string, error) {
	h := sha256.New()
	sums := map[string]string{}
	for _, p := range append([]string{cfg.KernelDeb}, cfg.FirmwareDebs...) {
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		i, err := describePath(p, p)
		if err != nil {
			return "", nil, app.Errorf(app.InvalidInput, "package-unreadable", "the package %s cannot be read: %w", p, err).
				Do("check the path, or leave it out to have it downloaded with apt-get")
		}
		sums[p] = i.SHA256
		fmt.Fprintln(h, i.SHA256)
	}
	fmt.Fprintln(h, driversFormat, z, strings.Join(cfg.Modules, " "))
	return hex.EncodeToString(h.Sum(nil)), sums, nil
}

func makeDrivers(ctx context.Context, cfg *Config, z compressor, sums map[string]string, dir string) error {
	k, err := readKernel(ctx, cfg.KernelDeb, dir)
	if err != nil {
		return err
	}
	defer k.spool.Close()
	k.info.SHA256 = sums[cfg.KernelDeb]
	cfg.say("kernel: %s %s, %d bytes, %d modules in the package", k.info.Package, k.info.Version, len(k.vmlinuz), len(k.modules))

	mods, absent, err := k.index.Closure(cfg.Modules)
	if err != nil {
		return err
	}
	list, names := wantedFirmware(mods)
	fw, err := readFirmware(ctx, cfg.FirmwareDebs, names)
	if err != nil {
		return err
	}
	a := newArchive()
	if err := placeModules(a, k, mods); err != nil {
		return err
	}
	fw.place(a, list)

	d := drivers{Kernel: k.info, Absent: absent, Firmware: list, Parts: driverParts(k.control, fw.packages)}
	for _, m := range mods {
		d.Modules = append(d.Modules, ModuleInfo{Name: m.Name, Path: m.Path, Bytes: m.Size})
	}
	return writeDrivers(ctx, cfg, z, a, k.vmlinuz, d, dir)
}

func placeModules(a *archive, k *kernel, mods []*kmod.Module) error {
	dir := "lib/modules/" + k.info.Release + "/"
	dep, err := k.index.Dep(mods)
	if err != nil {
		return err
	}
	a.file(dir+"modules.dep", []byte(dep), 0o644)
	a.file(dir+"modules.alias", []byte(kmod.Alias(mods)), 0o644)
	a.file(dir+"modules.builtin", []byte(k.builtin), 0o644)
	for _, m := range mods {
		a.section(dir+m.Path, k.body(m), m.Size, 0o644)
	}
	return nil
}

func writeDrivers(ctx context.Context, cfg *Config, z compressor, a *archive, vmlinuz []byte, d drivers, dir string) error {
	var raw int64
	n, err := writeFile(filepath.Join(dir, driversArchive), func(w io.Writer) error {
		return z.compress(ctx, w, func(w io.Writer) (err error) {
			raw, err = a.write(w)
			return err
		})
	})
	if err != nil {
		return err
	}
	cfg.say("drivers: %d modules, %d bytes, %d compressed (%s)", len(d.Modules), raw, n, z)
	if err := os.WriteFile(filepath.Join(dir, KernelFile), vmlinuz, 0o644); err != nil {
		return fmt.Errorf("writing the kernel: %w", err)
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the drivers: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, driversInfo), b, 0o644); err != nil {
		return fmt.Errorf("writing the drivers: %w", err)
	}
	return nil
}

// driverParts names the Debian packages. Debian keeps every source package it ever published on snapshot.debian.org.
func driverParts(kernel deb.Control, firmware []deb.Control) []Part {
	parts := []Part{debianPart(InKernel, kernel, "GPL-2.0-only")}
	for _, c := range firmware {
		parts = append(parts, debianPart(InFirmware, c, "see /usr/share/doc/"+c.Package+"/copyright"))
	}
	return parts
}

func debianPart(in string, c deb.Control, license string) Part {
	source, version := c.Package, c.Version
	if c.Source != "" {
		s, v, ok := strings.Cut(c.Source, " (")
		source = s
		if ok {
			version = strings.TrimSuffix(v, ")")
		}
	}
	return Part{In: in, Name: c.Package, Version: c.Version, License: license, Source: "https://snapshot.debian.org/package/" + source + "/" + version + "/"}
}

// writeFile creates a file, syncs it and gives its length.
func writeFile(name string, write func(io.Writer) error) (n int64, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, fmt.Errorf("creating %q: %w", name, err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("closing %q: %w", name, cerr)
		}
	}()
	if err := write(f); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("syncing %q: %w", name, err)
	}
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("measuring %q: %w", name, err)
	}
	return st.Size(), nil
}
