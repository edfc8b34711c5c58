package passthrough

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Admin is an NVMe admin command (struct nvme_passthru_cmd of linux/nvme_ioctl.h).
type Admin struct {
	Opcode  uint8
	NSID    uint32
	Data    []byte    // read from the controller
	CDW     [6]uint32 // dwords 10 to 15
	Timeout time.Duration
}

// NVMe sends admin commands to the controller of a namespace.
type NVMe interface {
	Namespace() (nsid uint32, err error)
	Do(a Admin) error
}

// Status is an NVMe status code that a command ended with.
type Status uint16

func (s Status) Error() string { return fmt.Sprintf("NVMe status %#04x", uint16(s)) }

// NVMeFile sends commands through a namespace's device file.
type NVMeFile struct{ File *os.File }

const (
	ioctlNVMeID    = 0x4e40     // NVME_IOCTL_ID
	ioctlNVMeAdmin = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD
)

// Namespace gives the identifier of the file's namespace.
func (n NVMeFile) Namespace() (uint32, error) {
	id, _, errno := syscall.Syscall(syscall.SYS_IOCTL, n.File.Fd(), ioctlNVMeID, 0)
	if errno != 0 {
		return 0, os.NewSyscallError("NVME_IOCTL_ID", errno)
	}
	return uint32(id), nil
}

// Do sends a command and waits for its end.
func (n NVMeFile) Do(a Admin) error {
	c := struct {
		opcode, flags        uint8
		_                    uint16
		nsid, cdw2, cdw3     uint32
		metadata, addr       uint64
		metadataLen, dataLen uint32
		cdw                  [6]uint32
		timeout, result      uint32 // timeout in ms
	}{opcode: a.Opcode, nsid: a.NSID, cdw: a.CDW, timeout: uint32(a.Timeout.Milliseconds()), dataLen: uint32(len(a.Data))}
	var pin runtime.Pinner
	defer pin.Unpin()
	if len(a.Data) > 0 {
		pin.Pin(&a.Data[0])
		c.addr = uint64(uintptr(unsafe.Pointer(&a.Data[0])))
	}
	r, _, errno := syscall.Syscall(syscall.SYS_IOCTL, n.File.Fd(), ioctlNVMeAdmin, uintptr(unsafe.Pointer(&c)))
	switch {
	case errno != 0:
		return os.NewSyscallError("NVME_IOCTL_ADMIN_CMD", errno)
	case r != 0:
		return Status(r)
	}
	return nil
}
