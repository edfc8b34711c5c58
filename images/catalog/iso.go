package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/layout"
)

// ISO is the format of a CD or DVD image. It is kept as one file, for it is never written to a disk but read in place: as
// virtual media by a BMC, or by a loader's sanboot.
const ISO = "iso"

// isoFile is the name of an ISO's bytes in its image's directory and in its address.
const isoFile = "image.iso"

// ISOPath is where the boot listener serves an image of format ISO, whole, with Range.
func ISOPath(i *app.Image) string { return "/images/" + i.ID + "/" + isoFile }

// isISO reports whether a row is of an ISO, compressed when it was delivered or not.
func isISO(i *app.Image) bool { return i.Layout.Table == layout.TableISO }

// takeISO keeps a stream as a file. It is offered as any image is: when all held, and durably.
func (c *Catalog) takeISO(ctx context.Context, i *app.Image, r io.Reader, counted *source, format string) (*app.Image, error) {
	dir, err := os.MkdirTemp(c.tmp(), "image-*")
	if err != nil {
		return nil, fmt.Errorf("keeping an ISO: %w", err)
	}
	defer os.RemoveAll(dir)
	f, err := os.OpenFile(filepath.Join(dir, isoFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keeping an ISO: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(&spool{f, c}, sum), r)
	if err != nil {
		return nil, err
	}
	if err := counted.finish(); err != nil {
		return nil, err
	}
	l, ok := layout.ISO(f)
	if !ok {
		return nil, errNotDisk
	}
	if err := errors.Join(f.Sync(), os.Chmod(dir, 0o755), syncDir(dir)); err != nil {
		return nil, fmt.Errorf("keeping an ISO: %w", err)
	}
	i.Format, i.SourceSize, i.SourceSHA, i.Layout = format, counted.n, counted.sum.sha256(), l
	i.State, i.RawBytes, i.UsedBytes, i.StoreBytes, i.Index = Ready, n, n, n, hex.EncodeToString(sum.Sum(nil))
	i.Phase, i.Done, i.Total, i.Reason = "", 0, 0, ""
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := os.Rename(dir, c.imageDir(i.ID)); err != nil {
		return nil, fmt.Errorf("keeping an ISO: %w", err)
	}
	if err := syncDir(filepath.Dir(c.imageDir(i.ID))); err != nil {
		return nil, err
	}
	return c.offer(ctx, i)
}

// checkISO finds an ISO that is gone or cut short. Its bytes are not read: that would take minutes at every start.
func (c *Catalog) checkISO(i *app.Image) error {
	info, err := os.Stat(filepath.Join(c.imageDir(i.ID), isoFile))
	if err == nil && info.Size() != i.RawBytes {
		err = fmt.Errorf("it has %d bytes, the row says %d", info.Size(), i.RawBytes)
	}
	return err
}
