package netboot

import (
	"io"
	"net/netip"

	"github.com/better-compute/bcd/netboot/internal/httpboot"
)

// The files of one boot that its boot data is part of.
const (
	ProgramFile = httpboot.Program // an EFI program that boots the machine into the ramdisk
	CDFile      = httpboot.CD      // the CD around it, for virtual media
)

// ExitFile is the name of the EFI program that an idle machine is given by UEFI HTTP Boot. It ends at once, and the firmware
// goes on to the disk.
const ExitFile = "disk.efi"

// BootImage is a large file that belongs to one boot, read where it lies.
type BootImage struct {
	io.ReaderAt
	Size      int64  // bytes
	Tag       string // a strong validator: equal bytes, equal tag
	MachineID string // whose boot it is
}

// BootPath is the path of a file of one boot on the HTTP listener, by the boot's key. It holds no query and needs no
// escaping: some firmware and BMCs (Dell's) take an address only as far as a "?".
func BootPath(key, file string) string { return "/boot/" + key + "/" + file }

// AddressToward is our address as another host sees it, by the kernel's routes: for a BMC, which is in no subnet of ours. It
// reports false when there is no way there.
func (s *Server) AddressToward(host netip.Addr) (netip.Addr, bool) {
	a := s.route(host)
	return a, a.IsValid()
}
