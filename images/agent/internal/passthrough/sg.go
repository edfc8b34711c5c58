package passthrough

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// SGFile sends SCSI commands through a disk's device file, by SG_IO (linux, include/scsi/sg.h).
type SGFile struct{ File *os.File }

const ioctlSG = 0x2285 // SG_IO

// sgHeader is struct sg_io_hdr.
type sgHeader struct {
	id        int32 // 'S'
	direction int32
	cmdLen    uint8
	senseMax  uint8
	iovecs    uint16
	dataLen   uint32
	data      uintptr
	cmd       uintptr
	sense     uintptr
	timeout   uint32 // ms
	flags     uint32
	packID    int32
	_         uint32
	user      uintptr
	status    uint8
	masked    uint8
	message   uint8
	senseLen  uint8
	host      uint16
	driver    uint16
	resid     int32
	duration  uint32
	info      uint32
}

// Do sends a command and waits for its end.
func (s SGFile) Do(cdb []byte, dir Direction, data []byte, timeout time.Duration) ([]byte, error) {
	sense := make([]byte, 252)
	h := sgHeader{
		id: 'S', direction: map[Direction]int32{NoData: -1, ToDisk: -2, FromDisk: -3}[dir], cmdLen: uint8(len(cdb)), senseMax: uint8(len(sense)),
		dataLen: uint32(len(data)), timeout: millis(timeout),
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&cdb[0])
	pin.Pin(&sense[0])
	h.cmd, h.sense = uintptr(unsafe.Pointer(&cdb[0])), uintptr(unsafe.Pointer(&sense[0]))
	if len(data) > 0 {
		pin.Pin(&data[0])
		h.data = uintptr(unsafe.Pointer(&data[0]))
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, s.File.Fd(), ioctlSG, uintptr(unsafe.Pointer(&h))); errno != 0 {
		return nil, os.NewSyscallError("SG_IO", errno)
	}
	sense = sense[:min(int(h.senseLen), len(sense))]
	return sense, scsiEnd(h.status, h.host, sense)
}
