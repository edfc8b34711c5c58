package flat

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat/internal/ext4"
)

// Layer is a tar archive that can be read more than once. Open gives it without compression; it must give the same bytes
// each time, or an error by the end.
type Layer struct {
	Name string // for messages: its digest; "": there is but one
	Open func() (io.ReadCloser, error)
}

func (l Layer) named() string {
	if l.Name == "" {
		return ""
	}
	return " " + l.Name
}

// layerShift is where the number of a layer lies in Inode.Order, above that of the entry.
const layerShift = 40

// kept are the files whose content decides how the disk is made, up to maxKept bytes each.
var kept = []string{"etc/fstab", "boot/grub/grub.cfg"}

const maxKept = 1 << 20

// limits of the content of files, in bytes.
type limits struct {
	content int64 // as the files say they are long, before they are read
	bytes   int64 // of all layers without their compression, as they are read
	why     string
}

// reader reads layers into a tree.
type reader struct {
	*tree
	ctx      context.Context
	limits   limits
	content  int64
	bytes    int64 // of the layers before the one that is read
	whiteout bool  // whether entries may be whiteouts
}

// layer reads one archive.
func (r *reader) layer(number int, l Layer) error {
	in, err := l.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	clear(r.fresh)
	counted := &counter{ctx: r.ctx, r: in, limit: max(1, r.limits.bytes-r.bytes)}
	defer func() { r.bytes += counted.n }()
	tr := tar.NewReader(counted)
	for n := int64(0); ; n++ {
		end := counted.n
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return r.finish(l, counted, end)
		}
		if err == nil && n>>layerShift != 0 {
			err = tar.ErrHeader
		}
		if err == nil {
			err = r.entry(h, tr, int64(number)<<layerShift|n)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, tr)
		}
		if err != nil {
			// A blob that is not what its digest says explains every damage; that is known at its end.
			if _, e := io.Copy(io.Discard, counted); e != nil {
				if _, told := app.AsError(e); told {
					err = e
				}
			}
			return r.damaged(l, err)
		}
	}
}

// damaged turns an archive's error into one that a person can act on.
func (r *reader) damaged(l Layer, err error) error {
	if _, told := app.AsError(err); told || r.ctx.Err() != nil {
		return err
	}
	if errors.Is(err, errEndless) {
		return app.Errorf(app.TooLarge, "image-too-large", "the archives of image %s have more than %d bytes without their compression, far more than their files hold", r.image, r.limits.bytes).
			Do("fetch or make it again: only a damaged archive, or one that means harm, is so")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return app.Errorf(app.InvalidInput, "archive-truncated", "the archive%s of image %s ends before it is complete", l.named(), r.image).Do("fetch or make it again")
	}
	return app.Errorf(app.InvalidInput, "archive-damaged", "the archive%s of image %s is damaged: %w", l.named(), r.image, err).Do("fetch it again, or make it again with tar")
}

// finish checks that an archive ended by its end mark, a block of zeros, and that only zeros follow. tar.Reader takes the
// bare end of its bytes for an end as well.
func (r *reader) finish(l Layer, in *counter, end int64) error {
	if in.n-end < 512 {
		return r.damaged(l, io.ErrUnexpectedEOF)
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return app.Errorf(app.InvalidInput, "archive-damaged", "the archive%s of image %s is followed by other bytes", l.named(), r.image).
				Do("make one archive of everything: archives that are put behind each other lose all but the first")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.damaged(l, err)
		}
	}
}

// counter counts bytes and ends with its context. It hides that its source can seek: an archive is always read whole.
type counter struct {
	ctx   context.Context
	r     io.Reader
	n     int64
	limit int64 // 0: none
}

// errEndless says that a layer has more bytes than its limit.
var errEndless = errors.New("the archive has no end")

func (c *counter) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.r.Read(b)
	if c.n += int64(n); c.limit > 0 && c.n > c.limit {
		return 0, errEndless
	}
	return n, err
}

// entry takes one entry of an archive.
func (r *reader) entry(h *tar.Header, content io.Reader, order int64) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if r.whiteout {
		if is, err := r.tree.whiteout(h.Name); is || err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeLink {
		return r.link(h.Name, h.Linkname)
	}
	i, err := r.inode(h)
	if err != nil {
		return err
	}
	i.Order = order
	if i.Mode&ext4.TypeMask == ext4.Regular {
		if err := r.weigh(h); err != nil {
			return err
		}
		if err := keep(h, i, content); err != nil {
			return err
		}
	}
	return r.put(h.Name, i)
}

// weigh bounds what files say they hold. A sparse file may say anything.
func (r *reader) weigh(h *tar.Header) error {
	if h.Size > ext4.MaxFile {
		return r.refuse(h.Name, "file-too-large", "has %d bytes, the limit is %d", h.Size, ext4.MaxFile).Do("leave it out of the archive, and bring it to the machine afterwards")
	}
	if r.content += h.Size; r.content > r.limits.content {
		return app.Errorf(app.TooLarge, "image-too-large", "the files of image %s hold more than %d bytes, %s: that is reached at %.300q", r.image, r.limits.content, r.limits.why, h.Name).
			Do("leave out what a machine does not need to boot, and sparse files such as disks of virtual machines")
	}
	return nil
}

// keep holds the content of a file that decides how the disk is made.
func keep(h *tar.Header, i *ext4.Inode, content io.Reader) error {
	name := strings.TrimPrefix(strings.TrimPrefix(h.Name, "./"), "/")
	for _, k := range kept {
		if name == k && h.Size <= maxKept {
			b, err := io.ReadAll(content)
			if err != nil {
				return err
			}
			i.Content = append([]byte{}, b...)
		}
	}
	return nil
}

// types are the kinds of entries that a root file system may have.
var types = map[byte]uint16{
	tar.TypeReg: ext4.Regular, tar.TypeCont: ext4.Regular, tar.TypeGNUSparse: ext4.Regular, tar.TypeDir: ext4.Directory, tar.TypeSymlink: ext4.Symlink,
	tar.TypeChar: ext4.CharDevice, tar.TypeBlock: ext4.BlockDevice, tar.TypeFifo: ext4.FIFO,
}

// inode makes the inode that a header describes.
func (r *reader) inode(h *tar.Header) (*ext4.Inode, error) {
	kind, ok := types[h.Typeflag]
	if !ok {
		return nil, r.refuse(h.Name, "bad-entry", "is an entry of the unknown type %q", h.Typeflag).Do("make the archive again with GNU tar")
	}
	for _, id := range []int{h.Uid, h.Gid} {
		if id < 0 || int64(id) > math.MaxUint32 {
			return nil, r.refuse(h.Name, "bad-owner", "belongs to user %d and group %d", h.Uid, h.Gid).Do("make the archive again with tar --numeric-owner")
		}
	}
	i := &ext4.Inode{Mode: kind | uint16(h.Mode&0o7777), UID: uint32(h.Uid), GID: uint32(h.Gid), Sec: r.sec}
	if !h.ModTime.IsZero() && h.ModTime.After(time.Unix(math.MinInt32, 0)) && h.ModTime.Before(time.Unix(math.MaxUint32*2, 0)) {
		i.Sec, i.Nsec = h.ModTime.Unix(), uint32(h.ModTime.Nanosecond())
	}
	switch kind {
	case ext4.Directory:
		i.Entries = map[string]*ext4.Inode{}
	case ext4.Symlink:
		i.Target = h.Linkname
		if n := len(i.Target); n == 0 || n > ext4.MaxTarget || strings.ContainsRune(i.Target, 0) {
			return nil, r.refuse(h.Name, "bad-link", "is a symbolic link with a target of %d bytes", n).Do("remove the link")
		}
	case ext4.CharDevice, ext4.BlockDevice:
		if h.Devmajor < 0 || h.Devmajor >= 1<<12 || h.Devminor < 0 || h.Devminor >= 1<<20 {
			return nil, r.refuse(h.Name, "bad-device", "is a device numbered %d:%d", h.Devmajor, h.Devminor).Do("leave /dev out of the archive: the machine makes its own")
		}
		i.Major, i.Minor = uint32(h.Devmajor), uint32(h.Devminor)
	case ext4.Regular:
		i.Size = h.Size
	}
	i.XAttrs = attributes(h)
	if err := ext4.CheckAttributes(i); err != nil {
		return nil, r.refuse(h.Name, "bad-attributes", "cannot be kept: %v", err).Do("make the archive without --xattrs, or remove the attribute")
	}
	return i, nil
}

// attributes takes the extended attributes that a Linux root has a use for: capabilities, labels, access control lists and
// the users' own. What other systems' archivers note of theirs is left out.
func attributes(h *tar.Header) map[string][]byte {
	var out map[string][]byte
	for k, v := range h.PAXRecords {
		name, ok := strings.CutPrefix(k, "SCHILY.xattr.")
		if !ok || !ext4.Representable(name) {
			continue
		}
		if out == nil {
			out = map[string][]byte{}
		}
		out[name] = []byte(v)
	}
	return out
}
