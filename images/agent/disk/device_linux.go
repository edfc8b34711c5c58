package disk

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// device is a block device or a regular file.
type device struct {
	f      *os.File
	block  bool
	size   int64
	sector int
}

// ask fills in what the kernel knows of a block device.
func (d *device) ask() error {
	var bytes uint64
	if err := d.ioctl("BLKGETSIZE64", unix.BLKGETSIZE64, unsafe.Pointer(&bytes)); err != nil {
		return err
	}
	sector, err := unix.IoctlGetInt(int(d.f.Fd()), unix.BLKSSZGET)
	if err != nil {
		return os.NewSyscallError("BLKSSZGET", err)
	}
	d.size, d.sector = int64(bytes), sector
	return nil
}

// ioctl is for requests whose argument is a pointer. os.File.Fd would make the file blocking; a disk already is.
func (d *device) ioctl(name string, req uint, arg unsafe.Pointer) error {
	_, _, no := unix.Syscall(unix.SYS_IOCTL, d.f.Fd(), uintptr(req), uintptr(arg))
	if no != 0 {
		return os.NewSyscallError(name, no)
	}
	return nil
}

func (d *device) ReadAt(b []byte, off int64) (int, error)  { return d.f.ReadAt(b, off) }
func (d *device) WriteAt(b []byte, off int64) (int, error) { return d.f.WriteAt(b, off) }
func (d *device) Size() int64                              { return d.size }
func (d *device) SectorSize() int                          { return d.sector }
func (d *device) Close() error                             { return d.f.Close() }

func (d *device) Zero(off, n int64) error {
	if d.block {
		arg := [2]uint64{uint64(off), uint64(n)}
		return d.ioctl("BLKZEROOUT", unix.BLKZEROOUT, unsafe.Pointer(&arg))
	}
	n = min(n, d.size-off)
	err := unix.Fallocate(int(d.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return d.writeZeros(off, n)
	}
	return os.NewSyscallError("fallocate", err)
}

func (d *device) writeZeros(off, n int64) error {
	b, err := Buffer(1 << 20)
	if err != nil {
		return err
	}
	defer Free(b)
	for n > 0 {
		m, err := d.f.WriteAt(b[:min(n, int64(len(b)))], off)
		if err != nil {
			return err
		}
		off, n = off+int64(m), n-int64(m)
	}
	return nil
}

func (d *device) Discard(off, n int64) error {
	if d.block {
		arg := [2]uint64{uint64(off), uint64(n)}
		return d.ioctl("BLKDISCARD", unix.BLKDISCARD, unsafe.Pointer(&arg))
	}
	return os.NewSyscallError("fallocate", unix.Fallocate(int(d.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n))
}

func (d *device) Sync() error {
	if err := d.f.Sync(); err != nil {
		return err
	}
	if !d.block {
		return nil
	}
	if err := unix.IoctlSetInt(int(d.f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return os.NewSyscallError("BLKFLSBUF", err)
	}
	return nil
}

func (d *device) Reread() error {
	if !d.block {
		return nil
	}
	err := unix.IoctlSetInt(int(d.f.Fd()), unix.BLKRRPART, 0)
	if errors.Is(err, unix.EINVAL) { // a device without partitions, as a loop device
		return nil
	}
	if err != nil {
		return fmt.Errorf("making the kernel read the partition table: %w", os.NewSyscallError("BLKRRPART", err))
	}
	return nil
}
