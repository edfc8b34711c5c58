package site

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/uki"
	"github.com/better-compute/bcd/netboot"
)

// bootImages makes the boot programs of machines out of the ramdisk's files.
type bootImages struct {
	maker *uki.Maker // nil: the ramdisk carries no stub, and machines boot by iPXE only

	mu    sync.Mutex
	lines map[string]string // kernel arguments by boot key
	order []string          // keys, the oldest first
}

// maxLines bounds the boots whose kernel arguments are remembered.
const maxLines = 4096

// openBootImages opens the parts of boot programs in the ramdisk's directory.
func openBootImages(f *bootFiles) (*bootImages, error) {
	b := &bootImages{lines: map[string]string{}}
	if f.manifest == nil {
		return b, nil
	}
	if _, ok := f.manifest.File(ramdisk.StubFile); !ok {
		return b, nil
	}
	in := func(name string) string { return filepath.Join(f.dir, name) }
	var err error
	b.maker, err = uki.New(uki.Config{Stub: in(ramdisk.StubFile), Kernel: in(ramdisk.KernelFile), Initramfs: in(ramdisk.InitramfsFile), Slot: ramdisk.BootDataSlot})
	return b, err
}

// close closes the files.
func (b *bootImages) close() error {
	if b.maker == nil {
		return nil
	}
	return b.maker.Close()
}

// cmdline fixes the kernel arguments of a boot when they are first asked for: firmware fetches twice, and a change of the
// profile between must not give it two halves that do not fit.
func (b *bootImages) cmdline(key, now string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if line, ok := b.lines[key]; ok {
		return line
	}
	if len(b.order) >= maxLines {
		delete(b.lines, b.order[0])
		b.order = b.order[1:]
	}
	b.lines[key], b.order = now, append(b.order, key)
	return now
}

// program is the path of a boot's EFI program, "" when none can be made.
func (b *bootImages) program(boot *app.Boot) string {
	if b.maker == nil {
		return ""
	}
	return netboot.BootPath(boot.Key, netboot.ProgramFile)
}

// BootImage gives the EFI program of a boot, or the CD around it, for as long as the boot's data is given.
func (p port67) BootImage(ctx context.Context, key, file string) (netboot.BootImage, error) {
	images := p.s.programs
	if images.maker == nil {
		return netboot.BootImage{}, app.Missing("boot", key)
	}
	d, err := p.s.agents.BootData(ctx, key)
	if err != nil {
		return netboot.BootImage{}, err
	}
	m, err := p.s.db.Machine(ctx, d.MachineID)
	if err != nil {
		return netboot.BootImage{}, err
	}
	args, err := p.kernelArgs(ctx, m)
	if err != nil {
		return netboot.BootImage{}, err
	}
	data, err := ramdisk.BootDataCPIOIn(d, ramdisk.BootDataSlot)
	if err != nil {
		return netboot.BootImage{}, err
	}
	i, err := images.maker.UKI(uki.Machine{BootData: data, Cmdline: images.cmdline(key, args)})
	if err == nil && file == netboot.CDFile {
		i, err = uki.ISO(i)
	}
	if err != nil {
		return netboot.BootImage{}, err
	}
	return netboot.BootImage{ReaderAt: i, Size: i.Size(), Tag: i.Tag(), MachineID: m.ID}, nil
}

// bootCD is where a machine's BMC fetches the CD that boots the ramdisk for the workflow that may boot it now: plain HTTP at
// our address as the BMC sees it, without a query, with HEAD and Range. It is a Conflict when no workflow has permitted a
// boot (PrepareRamdisk comes first), and Unsupported when the ramdisk carries no stub.
func (s *Site) bootCD(ctx context.Context, m *app.Machine) (string, error) {
	if s.programs.maker == nil {
		return "", app.Errorf(app.Unsupported, "no-boot-cd", "this ramdisk carries no UEFI stub, so no boot CD can be made of it").
			Do("build the ramdisk again with this bcd: bcd ramdisk build")
	}
	b, err := s.agents.Live(ctx, m.ID)
	if app.CodeOf(err) == app.NotFound {
		return "", app.Errorf(app.Conflict, "no-boot-permitted", "machine %s may not boot the ramdisk now", m.Name).Do("start a verb that needs it")
	}
	if err != nil {
		return "", err
	}
	a, err := s.addressForBMC(ctx, m)
	if err != nil {
		return "", err
	}
	return s.netboot.URL(a, netboot.BootPath(b.Key, netboot.CDFile)), nil
}

// addressForBMC is our address as a machine's BMC sees it.
func (s *Site) addressForBMC(ctx context.Context, m *app.Machine) (netip.Addr, error) {
	if m.BMC == nil {
		return s.address(m)
	}
	host := m.BMC.Address
	if u, err := url.Parse(host); err == nil && u.Hostname() != "" {
		host = u.Hostname()
	} else if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return netip.Addr{}, app.Errorf(app.Unavailable, "bmc-unknown-host", "the BMC's address %s of machine %s leads nowhere by IPv4: %w", host, m.Name, err).
			Do("check the BMC's address and this host's DNS")
	}
	for _, to := range found {
		if a, ok := s.netboot.AddressToward(to.Unmap()); ok {
			return a, nil
		}
	}
	return netip.Addr{}, app.Errorf(app.Unavailable, "no-way-to-bmc", "there is no way from here to the BMC %s of machine %s by IPv4", host, m.Name).
		Do("check the BMC's address and this host's routes")
}
