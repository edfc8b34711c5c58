package ramdisk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/ramdisk/internal/deb"
	"github.com/better-compute/bcd/images/ramdisk/internal/kmod"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// Limits of files inside a package, in bytes.
const (
	maxModule   = 128 << 20 // uncompressed; Debian's largest is 20 MB
	maxVmlinuz  = 64 << 20
	maxTextFile = 4 << 20

	maxDictionary = 64 << 20 // of xz; xz -9 uses 64 MiB
)

// kernel is what is taken from a kernel package. Module contents lie one after another in the spool.
type kernel struct {
	info    KernelInfo
	control deb.Control
	vmlinuz []byte
	builtin string // modules.builtin
	index   *kmod.Index
	spool   *os.File
	places  map[string]int64 // module path → offset in the spool

	modules []kmod.Module
	end     int64 // of the spool
}

// readKernel reads a kernel package. The caller closes the spool, which has no name any more.
func readKernel(ctx context.Context, debPath, tmp string) (*kernel, error) {
	spool, err := os.CreateTemp(tmp, "modules-*")
	if err != nil {
		return nil, fmt.Errorf("making room for modules: %w", err)
	}
	k := &kernel{spool: spool, places: map[string]int64{}}
	if err := os.Remove(spool.Name()); err != nil {
		spool.Close()
		return nil, fmt.Errorf("making room for modules: %w", err)
	}
	err = readDeb(ctx, debPath, func(c deb.Control) error {
		k.control = c
		return checkKernel(debPath, c)
	}, k.take)
	if err == nil {
		err = k.finish(debPath)
	}
	if err != nil {
		spool.Close()
		return nil, err
	}
	return k, nil
}

func checkKernel(debPath string, c deb.Control) error {
	if strings.HasPrefix(c.Package, "linux-image-") && c.Architecture == "amd64" {
		return nil
	}
	return app.Errorf(app.InvalidInput, "not-a-kernel-package", "%s is package %s for %s", path.Base(debPath), c.Package, c.Architecture).
		At("kernelDeb").Do("give the package that linux-image-amd64 depends on, as linux-image-6.1.0-57-amd64")
}

// take sorts one file of the package.
func (k *kernel) take(f deb.File) error {
	name := strings.TrimPrefix(f.Name, "usr/") // merged-/usr packages of later releases
	if rel, ok := strings.CutPrefix(name, "boot/vmlinuz-"); ok && f.Type == tar.TypeReg {
		b, err := readAll(f.Name, f.Body, maxVmlinuz)
		k.vmlinuz, k.info.Release = b, rel
		return err
	}
	rest, ok := strings.CutPrefix(name, "lib/modules/")
	if !ok || f.Type != tar.TypeReg {
		return nil
	}
	_, rel, _ := strings.Cut(rest, "/")
	if rel == "modules.builtin" {
		b, err := readAll(f.Name, f.Body, maxTextFile)
		k.builtin = string(b)
		return err
	}
	for _, ext := range []string{"", ".xz", ".zst", ".gz"} {
		if p, ok := strings.CutSuffix(rel, ".ko"+ext); ok {
			return k.module(p+".ko", ext, f.Body)
		}
	}
	return nil
}

// module spools one module uncompressed: the initramfs compresses as a whole, and better so.
func (k *kernel) module(p, ext string, r io.Reader) error {
	b, err := expand(p, ext, r)
	if err != nil {
		return err
	}
	m, err := kmod.ReadModule(p, bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	if _, err := k.spool.WriteAt(b, k.end); err != nil {
		return fmt.Errorf("spooling module %q: %w", p, err)
	}
	k.places[p] = k.end
	k.end += int64(len(b))
	k.modules = append(k.modules, m)
	return nil
}

func expand(name, ext string, r io.Reader) ([]byte, error) {
	var err error
	switch ext {
	case ".xz":
		r, err = xz.NewReader(r, maxDictionary)
	case ".gz":
		r, err = gzip.NewReader(r)
	case ".zst":
		var z *zstd.Decoder
		if z, err = zstd.NewReader(r, zstd.WithDecoderMaxMemory(maxModule), zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
			r = z
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", name, err)
	}
	return readAll(name, r, maxModule)
}

// readAll reads at most limit bytes and refuses more.
func readAll(name string, r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%q is larger than %d bytes", name, limit)
	}
	return b, nil
}

// finish checks that the package held a kernel and indexes its modules.
func (k *kernel) finish(debPath string) error {
	if len(k.vmlinuz) == 0 || len(k.modules) == 0 {
		return app.Errorf(app.InvalidInput, "kernel-package-incomplete", "%s holds %d bytes of kernel and %d modules", path.Base(debPath), len(k.vmlinuz), len(k.modules)).
			At("kernelDeb").Do("give the package with the kernel itself, not a metapackage")
	}
	k.info.Package, k.info.Version = k.control.Package, k.control.Version
	var err error
	k.index, err = kmod.NewIndex(k.modules, k.builtin)
	return err
}

// body gives a module's content.
func (k *kernel) body(m *kmod.Module) io.ReaderAt {
	return io.NewSectionReader(k.spool, k.places[m.Path], m.Size)
}

// readDeb opens a package, minds ctx, and names the file in what goes wrong.
func readDeb(ctx context.Context, p string, control func(deb.Control) error, file func(deb.File) error) error {
	f, err := os.Open(p)
	if err != nil {
		return app.Errorf(app.InvalidInput, "package-unreadable", "the package %s cannot be opened: %w", p, err).
			Do("check the path, or leave it out to have it downloaded with apt-get")
	}
	defer f.Close()
	err = deb.Read(f, control, func(e deb.File) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return file(e)
	})
	if _, ok := app.AsError(err); ok || err == nil || ctx.Err() != nil {
		return err
	}
	return app.Errorf(app.InvalidInput, "package-damaged", "%s cannot be read as a Debian package: %w", path.Base(p), err).Do("download it again")
}
