package early

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// uevent is what the kernel says of one device.
type uevent struct {
	Action    string // "add", "change", "remove"
	Subsystem string
	Modalias  string
	DevName   string // below /dev
}

// parseUevent reads the kernel's form: a header and KEY=value strings, each ended by a zero byte.
func parseUevent(b []byte) uevent {
	var e uevent
	for f := range bytes.SplitSeq(b, []byte{0}) {
		k, v, _ := bytes.Cut(f, []byte{'='})
		switch string(k) {
		case "ACTION":
			e.Action = string(v)
		case "SUBSYSTEM":
			e.Subsystem = string(v)
		case "MODALIAS":
			e.Modalias = string(v)
		case "DEVNAME":
			e.DevName = string(v)
		}
	}
	return e
}

// listenUevents opens the kernel's announcements. Open it before looking at the devices that are there: nothing is missed.
func listenUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("opening the uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("binding the uevent socket: %w", err)
	}
	// A controller may bring hundreds of disks at once. Without the room we are told that some were lost, and look at all.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	return os.NewFile(uintptr(fd), "uevents"), nil
}

// readUevents hands each announcement to fn, and calls lost when the kernel dropped some, until ctx ends or the socket
// is closed.
func readUevents(ctx context.Context, f *os.File, fn func(uevent), lost func()) {
	defer context.AfterFunc(ctx, func() { f.Close() })()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			lost()
		case err != nil:
			return
		default:
			fn(parseUevent(buf[:n]))
		}
	}
}
