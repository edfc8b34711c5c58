package catalog

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/better-compute/bcd/app"
)

// digest is over the bytes as delivered. It always takes the SHA-256, which the image's row states.
type digest struct {
	own  hash.Hash // SHA-256
	hash hash.Hash // what the caller wants compared: own, a SHA-512, or nil
	want string
	name string
}

// newDigest reads what a caller gave: hex in any case, with or without "sha256:" or "sha512:" before it.
func newDigest(s string) (*digest, error) {
	d := &digest{own: sha256.New(), name: "SHA-256"}
	s = strings.ToLower(strings.TrimSpace(s))
	if s == "" {
		return d, nil
	}
	kind, want, has := strings.Cut(s, ":")
	if !has {
		kind, want = "", s
	}
	raw, err := hex.DecodeString(want)
	bad := app.Invalid("digest", "is not a SHA-256 or SHA-512 digest").
		Do("give the 64 or 128 hexadecimal digits that sha256sum or sha512sum print for the file as delivered")
	switch {
	case err != nil, kind == "sha256" && len(raw) != 32, kind == "sha512" && len(raw) != 64:
		return nil, bad
	case len(raw) == 32 && (kind == "sha256" || kind == ""):
		d.hash = d.own
	case len(raw) == 64 && (kind == "sha512" || kind == ""):
		d.hash, d.name = sha512.New(), "SHA-512"
	default:
		return nil, bad
	}
	d.want = want
	return d, nil
}

func (d *digest) write(b []byte) {
	d.own.Write(b)
	if d.hash != nil && d.hash != d.own {
		d.hash.Write(b)
	}
}

func (d *digest) sha256() string { return hex.EncodeToString(d.own.Sum(nil)) }

func (d *digest) check() error {
	if d.hash == nil {
		return nil
	}
	if got := hex.EncodeToString(d.hash.Sum(nil)); got != d.want {
		return app.Errorf(app.InvalidInput, "digest-mismatch", "the %s of the file as delivered is %s, not %s", d.name, got, d.want).At("digest").
			Do("fetch the image again, and check that the digest is of the compressed file, not of the disk inside it")
	}
	return nil
}

// source reads the bytes as delivered: it counts, sums, shows progress and ends with its context.
type source struct {
	ctx   context.Context
	r     io.Reader
	sum   *digest
	meter *meter
	n     int64
	size  int64 // declared, or 0
}

func (s *source) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.r.Read(b)
	s.sum.write(b[:n])
	s.n += int64(n)
	s.meter.at(app.ImageReceiving, s.n)
	switch _, told := app.AsError(err); {
	case told:
	case errors.Is(err, io.EOF) && s.size > 0 && s.n < s.size, errors.Is(err, io.ErrUnexpectedEOF):
		err = app.Errorf(app.InvalidInput, "image-truncated", "the image ended after %d of %d bytes", s.n, s.size).Retryable().Do("send it again")
	case err != nil && !errors.Is(err, io.EOF):
		err = app.Errorf(app.Unavailable, "image-cut", "the transfer of the image was cut off after %d bytes: %w", s.n, err).Retryable().Do("send it again")
	case s.size > 0 && s.n > s.size:
		err = app.Errorf(app.InvalidInput, "image-size", "the image is longer than the %d bytes that were declared", s.size).Do("send it again")
	}
	return n, err
}

// finish reads what the decoder left, so that digest and length are of all bytes, and checks them.
func (s *source) finish() error {
	rest, err := io.Copy(io.Discard, io.LimitReader(s, 1<<20))
	if err != nil {
		return err
	}
	if rest > 0 {
		return app.Errorf(app.InvalidInput, "image-damaged", "the image is followed by other bytes").Do("fetch the image again")
	}
	return s.sum.check()
}

// free is the number of bytes that the file system of the catalog can still take.
func (c *Catalog) free() (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(c.cfg.Dir, &s); err != nil {
		return 0, fmt.Errorf("asking for free space: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// room refuses an import that is longer than what is free. What a raw image takes is known only afterwards.
func (c *Catalog) room(size int64) error {
	free, err := c.free()
	if err != nil {
		return err
	}
	if free < c.cfg.Reserve || size > 0 && size/8 > free-c.cfg.Reserve {
		return c.full(free, size)
	}
	return nil
}

func (c *Catalog) full(free, size int64) error {
	need := "the image"
	if size > 0 {
		need = fmt.Sprintf("an image of %d bytes", size)
	}
	return app.Errorf(app.StorageFull, "storage-full", "there is no room for %s: %d bytes are free below %s, and %d of them are kept for the appliance itself",
		need, free, c.cfg.Dir, c.cfg.Reserve).Do("delete images that are not needed, or enlarge that file system")
}

// errFull stops an import before the file system is full: the database may share it.
var errFull = errors.New("the file system's reserve is reached")

// watchSpace is asked after every 64 MiB or so of an image's chunks.
func (c *Catalog) watchSpace(off int64, raw []byte) error {
	if off>>26 == (off+int64(len(raw)))>>26 {
		return nil
	}
	return c.checkSpace()
}

func (c *Catalog) checkSpace() error {
	free, err := c.free()
	if err == nil && free < c.cfg.Reserve {
		err = errFull
	}
	return err
}

// storage turns a full disk into an error that a person can act on.
func (c *Catalog) storage(err error, size int64) error {
	if !errors.Is(err, errFull) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	free, e := c.free()
	if e != nil {
		return e
	}
	return c.full(free, size)
}

// spool writes a qcow2 image to a file and watches the space left.
type spool struct {
	f *os.File
	c *Catalog
}

func (s *spool) Write(b []byte) (int, error) {
	at, err := s.f.Seek(0, io.SeekCurrent)
	if err == nil && at>>26 != (at+int64(len(b)))>>26 {
		err = s.c.checkSpace()
	}
	if err != nil {
		return 0, err
	}
	return s.f.Write(b)
}
