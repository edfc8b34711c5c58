package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
)

// Credentials of every virtual BMC. The BMCs listen on the loopback only.
const (
	BMCUser     = "admin"
	BMCPassword = "lab-bmc-password"
)

// MachineSpec describes one virtual machine of a rack.
type MachineSpec struct {
	Name      string
	Firmware  app.Firmware
	HTTPBoot  bool        // UEFI machines: the network is booted by UEFI HTTP Boot and not by PXE
	OwnOrder  bool        // UEFI machines: the boot order is what the firmware's variables hold
	Bus       virtual.Bus // of its only disk; default virtio
	DiskBytes int64       // default 3 GiB, sparse
	MemoryMiB int         // default 1280
	CPUs      int         // default 2, or 1 on a host with one
	UUID      app.UUID    // default: one of the rack's own
}

// RackConfig describes a rack.
type RackConfig struct {
	Dir      string // made if missing; the machines' folders in it are made anew and removed by Close
	Network  NetworkConfig
	Machines []MachineSpec
	// OnLine gets each console line of each machine; must not block. May be nil.
	OnLine func(machine string, l virtual.Line)
	Log    *slog.Logger // default: discard
}

// Rack is an isolated network with virtual machines on it, all off at first.
type Rack struct {
	Network  *Network
	Machines []*virtual.Machine // in the order of the configuration
	Specs    []MachineSpec
	dirs     []string
	close    sync.Once
	err      error
}

// NewRack makes the network and the machines. The caller must call Close.
func NewRack(cfg RackConfig) (*Rack, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Network.Taps, cfg.Network.Log = max(1, len(cfg.Machines)), cfg.Log
	n, err := NewNetwork(cfg.Network)
	if err != nil {
		return nil, err
	}
	r := &Rack{Network: n}
	for i, spec := range cfg.Machines {
		if err := r.add(cfg, i, spec); err != nil {
			return nil, errors.Join(fmt.Errorf("making machine %s: %w", spec.Name, err), r.Close())
		}
	}
	return r, nil
}

// add makes machine i.
func (r *Rack) add(cfg RackConfig, i int, spec MachineSpec) error {
	spec = spec.withDefaults(i)
	if err := app.ValidName("name", spec.Name); err != nil {
		return err
	}
	dir := filepath.Join(cfg.Dir, spec.Name)
	if err := os.RemoveAll(dir); err != nil { // of a killed lab: this one holds the network's name
		return fmt.Errorf("clearing %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	r.dirs = append(r.dirs, dir)
	var first virtual.Target
	if spec.OwnOrder && spec.HTTPBoot {
		first = virtual.UefiHTTP
	}
	m, err := virtual.New(virtual.Config{
		Name: spec.Name, Dir: dir, Firmware: spec.Firmware, MemoryMiB: spec.MemoryMiB, CPUs: spec.CPUs,
		UUID: spec.UUID, Serial: fmt.Sprintf("LAB%04d", i+1),
		Disks:    []virtual.Disk{{Path: filepath.Join(dir, "disk.raw"), Bytes: spec.DiskBytes, Bus: spec.Bus, Serial: fmt.Sprintf("LABDISK%04d", i+1)}},
		NICs:     []virtual.NIC{{MAC: MAC(i), Tap: r.Network.Taps()[i]}},
		Netns:    r.Network.Name(),
		OwnOrder: spec.OwnOrder, DefaultBoot: first,
		Username: BMCUser, Password: BMCPassword, Log: cfg.Log,
		OnLine: func(l virtual.Line) {
			if cfg.OnLine != nil {
				cfg.OnLine(spec.Name, l)
			}
		},
	})
	if err != nil {
		return err
	}
	r.Machines, r.Specs = append(r.Machines, m), append(r.Specs, spec)
	return nil
}

// MAC is the address of machine i's only port, locally administered.
func MAC(i int) app.MAC { return app.MAC(fmt.Sprintf("52:54:00:77:00:%02x", i+1)) }

func (s MachineSpec) withDefaults(i int) MachineSpec {
	if s.UUID == "" {
		s.UUID = app.UUID(fmt.Sprintf("b0a7ca5e-0000-4000-8000-0000000000%02x", i+1))
	}
	if s.DiskBytes == 0 {
		s.DiskBytes = 3 << 30
	}
	if s.MemoryMiB == 0 {
		s.MemoryMiB = 1280
	}
	if s.CPUs == 0 {
		s.CPUs = min(2, runtime.NumCPU())
	}
	return s
}

// Run serves the machines' BMCs until ctx ends, then cuts their power.
func (r *Rack) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(r.Machines))
	for i, m := range r.Machines {
		go func() {
			err := m.Run(ctx)
			if err != nil {
				err = fmt.Errorf("running the BMC of %s: %w", r.Specs[i].Name, err)
			}
			ended <- err
		}()
	}
	var errs []error
	for range r.Machines {
		errs = append(errs, <-ended)
		cancel() // one that ends takes the others with it
	}
	return errors.Join(errs...)
}

// Machine finds a machine by its name, or gives nil.
func (r *Rack) Machine(name string) *virtual.Machine {
	for i, s := range r.Specs {
		if s.Name == name {
			return r.Machines[i]
		}
	}
	return nil
}

// spec is how a machine was described; it is there.
func (r *Rack) spec(name string) MachineSpec {
	for _, s := range r.Specs {
		if s.Name == name {
			return s
		}
	}
	return MachineSpec{}
}

// Tail is the end of a machine's console as text, for a person who looks for what went wrong.
func (r *Rack) Tail(name string, lines int) string {
	m := r.Machine(name)
	if m == nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(virtual.Plain(m.Console().Tail())), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Close ends the machines, removes their folders and the network. It may be called more than once.
func (r *Rack) Close() error {
	r.close.Do(func() {
		for _, m := range r.Machines {
			m.Close()
		}
		var errs []error
		for _, d := range r.dirs {
			errs = append(errs, os.RemoveAll(d))
		}
		r.err = errors.Join(append(errs, r.Network.Close())...)
	})
	return r.err
}
