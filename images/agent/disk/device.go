package disk

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Device is a disk opened for exclusive use. ReadAt and WriteAt need offsets, lengths and buffers that are multiples of
// Align (see Buffer). Its methods may be called concurrently.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Size() int64     // bytes
	SectorSize() int // logical, bytes, from BLKSSZGET
	// Zero makes a range, in multiples of the sector size, read as zeros: by BLKZEROOUT on a disk.
	Zero(off, n int64) error
	// Discard tells the disk that a range is not needed. What it reads as afterwards is the disk's affair.
	Discard(off, n int64) error
	// Sync returns when everything written is on the medium, and drops what the kernel has cached of the disk.
	Sync() error
	// Reread makes the kernel read the partition table again.
	Reread() error
	Close() error
}

// Align is what offsets, lengths and addresses of direct I/O are multiples of, in bytes.
const Align = 4096

// ErrInUse is what Open gives for a disk that is mounted, part of an array or held by another program.
var ErrInUse = errors.New("the disk is in use")

// Buffer makes a buffer that direct I/O accepts. Free gives it back to the kernel at once.
func Buffer(n int) ([]byte, error) {
	return syscall.Mmap(-1, 0, (n+Align-1)/Align*Align, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}

// Free ends the life of a Buffer.
func Free(b []byte) { _ = syscall.Munmap(b) }

// Open opens a block device, or a regular file standing in for one in tests and labs, with O_EXCL and O_DIRECT.
func Open(path string) (Device, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	d := &device{block: info.Mode()&os.ModeDevice != 0, size: info.Size(), sector: 512}
	flags := os.O_RDWR | syscall.O_DIRECT
	if d.block {
		flags |= os.O_EXCL
	}
	d.f, err = os.OpenFile(path, flags, 0)
	if errors.Is(err, syscall.EINVAL) && !d.block { // a file system without direct I/O
		d.f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	switch {
	case errors.Is(err, syscall.EBUSY):
		return nil, ErrInUse
	case err != nil:
		return nil, err
	}
	if d.block {
		err = d.ask()
	}
	if err != nil {
		d.f.Close()
		return nil, err
	}
	return d, nil
}
