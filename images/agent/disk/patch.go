package disk

import (
	"fmt"
	"io"
)

// loose reads any range of a Device, whose own ReadAt wants alignment.
type loose struct{ dev Device }

// ReadAt implements io.ReaderAt.
func (l loose) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= l.dev.Size() {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), l.dev.Size()-off))
	lo, hi := window(l.dev, off, n)
	buf, err := Buffer(int(hi - lo))
	if err != nil {
		return 0, err
	}
	defer Free(buf)
	if _, err := l.dev.ReadAt(buf[:hi-lo], lo); err != nil {
		return 0, atOffset{lo, hi - lo, err}
	}
	copy(b[:n], buf[off-lo:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// window is the aligned range around n bytes at off, inside the disk.
func window(dev Device, off int64, n int) (lo, hi int64) {
	lo = off &^ (Align - 1)
	return lo, min((off+int64(n)+Align-1)&^(Align-1), dev.Size())
}

// patch overwrites any range of a Device, by reading and writing what is around it.
func patch(dev Device, off int64, b []byte) error {
	lo, hi := window(dev, off, len(b))
	if off < 0 || off+int64(len(b)) > hi {
		return fmt.Errorf("%d bytes at offset %d lie outside the disk", len(b), off)
	}
	buf, err := Buffer(int(hi - lo))
	if err != nil {
		return err
	}
	defer Free(buf)
	if _, err := dev.ReadAt(buf[:hi-lo], lo); err != nil {
		return atOffset{lo, hi - lo, err}
	}
	copy(buf[off-lo:], b)
	if _, err := dev.WriteAt(buf[:hi-lo], lo); err != nil {
		return atOffset{lo, hi - lo, err}
	}
	return nil
}
