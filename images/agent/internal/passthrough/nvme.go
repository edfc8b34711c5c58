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

// Status is an NVMe status that a command ended with, as the kernel gives it: code and type in bits 10:0, above them hints
// about retrying, which drives set as they like.
type Status uint16

// Code is the status without the hints: type in bits 10:8, code in bits 7:0.
func (s Status) Code() uint16 { return uint16(s) & 0x7ff }

func (s Status) Error() string {
	code := fmt.Sprintf("NVMe status %#04x", uint16(s))
	if text, known := statusTexts[s.Code()]; known {
		return text + " (" + code + ")"
	}
	return code
}

// SanitizeInProgress is the status of what a drive refuses because it sanitizes itself.
const SanitizeInProgress = 0x01d

// statusTexts are the statuses that erasing was seen to end with, for people (NVM Express Base Specification 2.0, 3.3.3.2).
var statusTexts = map[uint16]string{
	0x001: "the drive does not know the command", 0x002: "the drive does not take this form of the command",
	0x006: "the drive has failed inside", 0x007: "the command was aborted", 0x00b: "the drive does not know the namespace",
	0x00c: "the drive wants other commands before this one", 0x015: "the drive denies the command",
	0x01c: "the drive's last sanitize failed, and until one succeeds it does nothing else", SanitizeInProgress: "the drive is sanitizing itself",
	0x020: "the namespace is write-protected", 0x082: "the namespace is not ready", 0x084: "the namespace is being formatted",
	0x10a: "the drive does not take the format", 0x123: "the drive's persistent memory is on, so it does not sanitize itself",
	0x286: "the drive is locked, by its own encryption or a password: unlock it, or revert it with the PSID on its label",
	0x371: "the drive did not answer in time",
}

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
	}{opcode: a.Opcode, nsid: a.NSID, cdw: a.CDW, timeout: millis(a.Timeout), dataLen: uint32(len(a.Data))}
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
