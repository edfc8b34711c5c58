package uki

import (
	"bytes"
	"errors"
	"strings"

	"github.com/better-compute/bcd/app"
)

// MaxCmdline is the longest list of kernel arguments, bytes: COMMAND_LINE_SIZE of Linux on x86, less the end.
const MaxCmdline = 2047

// Config names the files that every image is made of. All are required.
type Config struct {
	Stub      string // path of systemd's linuxx64.efi.stub
	Kernel    string // path of a bzImage
	Initramfs string // path; the boot data goes before it
	Slot      int    // bytes kept for the boot data, a multiple of four
}

// Maker makes images. It holds its files open: what it makes stays the same when they are replaced. It is safe for
// concurrent use.
type Maker struct {
	stub              *stub
	kernel, initramfs source
	slot              int64
}

// New opens the files. The caller closes the Maker when nobody reads its images any more.
func New(cfg Config) (*Maker, error) {
	if cfg.Slot <= 0 || cfg.Slot%4 != 0 {
		return nil, errors.New("uki: the slot must be a multiple of four bytes")
	}
	s, err := openStub(cfg.Stub)
	if err != nil {
		return nil, err
	}
	m := &Maker{stub: s, slot: int64(cfg.Slot)}
	if m.kernel, err = openSource(cfg.Kernel); err != nil {
		return nil, err
	}
	if m.initramfs, err = openSource(cfg.Initramfs); err != nil {
		return nil, errors.Join(err, m.kernel.Close())
	}
	return m, nil
}

// Close closes the files.
func (m *Maker) Close() error { return errors.Join(m.kernel.Close(), m.initramfs.Close()) }

// Machine is what differs from machine to machine.
type Machine struct {
	BootData []byte // a whole, uncompressed cpio, as ramdisk.BootDataCPIO makes it; at most the slot
	Cmdline  string // kernel arguments on one line, printable ASCII
}

// osrel is what boot menus show.
const osrel = "ID=bcd\nNAME=bcd\nPRETTY_NAME=\"bcd ramdisk\"\nVERSION_ID=1\n"

// UKI is the EFI program that boots one machine into the ramdisk.
func (m *Maker) UKI(x Machine) (*Image, error) {
	if err := m.check(x); err != nil {
		return nil, err
	}
	cmdline := append([]byte(x.Cmdline), 0)
	sections := [added]section{
		{name: ".osrel", size: int64(len(osrel))},
		{name: ".cmdline", size: int64(len(cmdline))},
		{name: ".initrd", size: m.slot + m.initramfs.size},
		{name: ".linux", size: m.kernel.size},
	}
	head, size, err := m.stub.head(&sections)
	if err != nil {
		return nil, err
	}
	memory := func(at int64, b []byte) piece { return piece{at, int64(len(b)), bytes.NewReader(b)} }
	return &Image{
		size: size,
		pieces: []piece{
			memory(0, head), memory(sections[0].at, []byte(osrel)), memory(sections[1].at, cmdline), memory(sections[2].at, bytes.Clone(x.BootData)),
			{sections[2].at + m.slot, m.initramfs.size, m.initramfs},
			{sections[3].at, m.kernel.size, m.kernel},
		},
		tag: tagOf(head, cmdline, x.BootData, []byte(m.initramfs.id), []byte(m.kernel.id)),
	}, nil
}

func (m *Maker) check(x Machine) error {
	switch {
	case len(x.BootData) == 0 || len(x.BootData)%4 != 0:
		return errors.New("uki: the boot data must be a multiple of four bytes")
	case int64(len(x.BootData)) > m.slot:
		return app.Errorf(app.TooLarge, "boot-data-too-large", "the boot data takes %d bytes, its slot has %d", len(x.BootData), m.slot).
			Do("give the machine fewer rescue keys or the site fewer addresses")
	case len(x.Cmdline) > MaxCmdline:
		return app.Errorf(app.TooLarge, "kernel-arguments-too-long", "the kernel arguments take %d bytes, the kernel reads %d", len(x.Cmdline), MaxCmdline).
			Do("shorten the kernel arguments of the machine's hardware profile")
	case strings.ContainsFunc(x.Cmdline, func(c rune) bool { return c < ' ' || c > '~' }):
		return app.Errorf(app.InvalidInput, "kernel-arguments-unprintable", "the kernel arguments hold a character that is not printable ASCII").
			Do("correct the kernel arguments of the machine's hardware profile")
	}
	return nil
}
