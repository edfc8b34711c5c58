package virtual

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Debian's files, from the packages ovmf and qemu-system-x86.
const (
	qemuBinary = "qemu-system-x86_64"
	ovmfCode   = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars   = "/usr/share/OVMF/OVMF_VARS_4M.fd"
	varsFile   = "uefi-vars.fd"
)

// File descriptors QEMU inherits.
const (
	qmpFD    = 3
	serialFD = 4
)

// Processor is the model that every guest is given. It is x86-64-v2, which the distributions of today need, and no more: wider vector instructions are there to be
// fast and are slow when emulated (BLAKE3 of Go: 12 MB/s with AVX2, 50 MB/s without), and a guest that finds AES or SVM
// loads and tests modules for them on each boot. RDRAND, because a guest without entropy hangs in getrandom for ever.
const Processor = "qemu64,-svm,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand,+rdtscp"

// arguments is QEMU's command line for one power-on.
func arguments(cfg Config, boot Boot, vars string) []string {
	a := []string{
		"-name", "bcd-" + cfg.Name,
		"-nodefaults", "-no-user-config", "-display", "none", "-vga", "none",
		// Without graphics SeaBIOS and option ROMs print on the serial port.
		"-machine", "q35,graphics=off",
		"-accel", "tcg,thread=multi", "-cpu", Processor,
		"-m", strconv.Itoa(cfg.MemoryMiB), "-smp", strconv.Itoa(cfg.CPUs),
		"-uuid", string(cfg.UUID),
		"-smbios", "type=1," + pairs("manufacturer", cfg.Vendor, "product", cfg.Model, "serial", cfg.Serial),
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d", qmpFD), "-mon", "chardev=qmp,mode=control",
		"-chardev", fmt.Sprintf("socket,id=serial0,fd=%d", serialFD), "-serial", "chardev:serial0",
		// A guest reset ends the process: the next boot needs another boot order, which a running QEMU cannot change.
		"-action", "reboot=shutdown",
	}
	if boot.Firmware == app.FirmwareUEFI {
		a = append(a, "-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+ovmfCode,
			"-drive", "if=pflash,format=raw,unit=1,file="+escape(vars))
	}
	if d := cfg.Direct; d != nil {
		a = append(a, "-kernel", d.Kernel, "-initrd", d.Initrd, "-append", d.Cmdline)
	}
	own := inVariables(cfg, boot)
	if boot.Target == UefiHTTP || own && cfg.DefaultBoot == UefiHTTP {
		// OVMF then makes boot options for HTTP alone.
		a = append(a, "-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n", "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n")
	}
	index := bootIndexes(cfg, boot)
	if own {
		index = nil
	}
	a = append(a, diskArguments(cfg.Disks, index[Hdd])...)
	a = append(a, mediaArguments(boot, index)...)
	return append(a, nicArguments(cfg.NICs, index[Pxe], boot.Firmware)...)
}

// inVariables reports whether a boot goes by the order in the firmware's variables, which an operating system may change and
// an override leaves alone. Else the emulator tells OVMF an order, and OVMF writes that into its variables at each boot. The
// drives of virtual media, which come and go, are always asked for in that way.
func inVariables(cfg Config, boot Boot) bool {
	return cfg.OwnOrder && boot.Firmware == app.FirmwareUEFI && boot.Target != Cd && boot.Target != Usb
}

// bootIndex is the option that gives a device its place, which begins with 1; "" for a device without one.
func bootIndex(first, i int) string {
	if first == 0 {
		return ""
	}
	return fmt.Sprintf(",bootindex=%d", first+i)
}

// bootIndexes gives the first boot index of each kind of device: the target's first, then the machine's own order, and
// virtual media after it.
func bootIndexes(cfg Config, boot Boot) map[Target]int {
	order := []Target{boot.Target, Hdd, Pxe, Cd, Usb}
	if boot.Target == UefiHTTP {
		order[0] = Pxe // the same ports
	}
	if cfg.DefaultBoot != Hdd {
		order[1], order[2] = Pxe, Hdd
	}
	count := map[Target]int{Hdd: len(cfg.Disks), Pxe: len(cfg.NICs), Cd: 1, Usb: 1}
	index, next := map[Target]int{}, 1
	for _, t := range order {
		if _, placed := index[t]; !placed {
			index[t] = next
			next += count[t]
		}
	}
	return index
}

// The ids of the virtual drives' devices. The CD drive has the last port of the q35 controller.
const (
	cdID    = "virtual-cd"
	stickID = "virtual-stick"
)

// mediaArguments attaches the virtual drives that hold something.
func mediaArguments(boot Boot, index map[Target]int) []string {
	var a []string
	if boot.CD != "" {
		a = append(a, "-drive", "if=none,id=cd,media=cdrom,format=raw,readonly=on,file="+escape(boot.CD),
			"-device", fmt.Sprintf("ide-cd,id=%s,bus=ide.5,drive=cd%s", cdID, bootIndex(index[Cd], 0)))
	}
	if boot.Stick != "" {
		a = append(a, "-drive", "if=none,id=stick,format=raw,readonly=on,file="+escape(boot.Stick),
			"-device", "qemu-xhci,id=xhci",
			"-device", fmt.Sprintf("usb-storage,id=%s,bus=xhci.0,drive=stick,removable=on%s", stickID, bootIndex(index[Usb], 0)))
	}
	return a
}

func diskArguments(disks []Disk, index int) []string {
	var a []string
	scsi := false
	for i, d := range disks {
		id := fmt.Sprintf("disk%d", i)
		a = append(a, "-drive", fmt.Sprintf("if=none,id=%s,format=%s,cache=%s,discard=unmap,file=%s", id, d.Format, d.cache(), d.file()))
		if d.Bus == SCSI && !scsi {
			scsi = true
			a = append(a, "-device", "virtio-scsi-pci,id=scsi0")
		}
		device := map[Bus]string{
			VirtIO: "virtio-blk-pci", NVMe: "nvme", SCSI: "scsi-hd,bus=scsi0.0", AHCI: fmt.Sprintf("ide-hd,bus=ide.%d", ahciPort(disks, i)),
		}[d.Bus]
		opt := fmt.Sprintf("%s,drive=%s%s", device, id, bootIndex(index, i))
		if d.Serial != "" {
			opt += "," + pairs("serial", d.Serial)
		}
		a = append(a, "-device", opt)
	}
	return a
}

// ahciPort is the port of the q35 controller that disk i gets.
func ahciPort(disks []Disk, i int) int {
	port := 0
	for _, d := range disks[:i] {
		if d.Bus == AHCI {
			port++
		}
	}
	return port
}

// cache is QEMU's cache mode. The guest's flushes need not reach the host's medium: what must survive is the guest's
// power cut, not the host's. A raw file's bytes are the host's as soon as QEMU has written them; qcow2 keeps tables in QEMU.
func (d Disk) cache() string {
	if d.Format == "raw" {
		return "unsafe"
	}
	return "writeback"
}

// file is the value of file=, with the fault injector before it when there is one.
func (d Disk) file() string {
	if d.Faults != "" {
		return escape("blkdebug:" + d.Faults + ":" + d.Path)
	}
	return escape(d.Path)
}

func nicArguments(nics []NIC, index int, firmware app.Firmware) []string {
	var a []string
	for i, n := range nics {
		netdev := n.Netdev
		if n.Tap != "" {
			netdev = "tap,ifname=" + n.Tap + ",script=no,downscript=no"
		}
		kind, rest, _ := strings.Cut(netdev, ",")
		if rest != "" {
			rest = "," + rest
		}
		opt := fmt.Sprintf("%s,netdev=net%d,mac=%s%s", n.Model, i, n.MAC, bootIndex(index, i))
		// Without an option ROM the firmware's own virtio driver and PXE client run, which is what UEFI servers do.
		// On BIOS the option ROM is the PXE client.
		if firmware == app.FirmwareUEFI && n.Model == "virtio-net-pci" {
			opt += ",romfile="
		}
		a = append(a, "-netdev", fmt.Sprintf("%s,id=net%d%s", kind, i, rest), "-device", opt)
	}
	return a
}

// pairs joins key, value, key, value… for a QEMU option, leaving out empty values.
func pairs(kv ...string) string {
	var out []string
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] != "" {
			out = append(out, kv[i]+"="+escape(kv[i+1]))
		}
	}
	return strings.Join(out, ",")
}

// escape writes a value so that a comma in it does not end it.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }
