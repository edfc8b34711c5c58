package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Limits of one inventory.
const (
	maxDisks   = 1024
	maxNICs    = 256
	maxPCI     = 4096
	maxSockets = 64
	maxModules = 512
	maxWants   = 256
	maxText    = 256 // bytes of one string
	// maxJSON leaves room for the report that carries the inventory.
	maxJSON = agentv1.MaxInventory - 128<<10
)

// Config of a Collector. Log is required; roots default to the machine's own.
type Config struct {
	Sys, Proc string
	BootMAC   string // colon form
	Log       *slog.Logger
	Now       func() time.Time                                    // nil: time.Now
	Addrs     func(port string) []string                          // addresses of a port; nil: not told
	LLDP      func() map[string]agentv1.LLDP                      // by port, heard so far; nil: not told
	BMC       func(ctx context.Context) (*agentv1.BMCInfo, error) // nil, nil: no BMC to talk to; nil func: not asked
	Wants     func() ([]string, error)                            // what drivers asked for in vain; nil: not told
}

// Collector takes inventories.
type Collector struct{ cfg Config }

// New makes a Collector.
func New(cfg Config) *Collector {
	if cfg.Sys == "" {
		cfg.Sys = "/sys"
	}
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Collector{cfg: cfg}
}

// Handle serves agentv1.KindInventory.
func (c *Collector) Handle(ctx context.Context, _ agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
	progress(agentv1.ProgressReport{Phase: "inventory"})
	inv := c.Take(ctx)
	return inv, ctx.Err()
}

// Take reads everything. It never fails: what could not be read stands in Partial.
func (c *Collector) Take(ctx context.Context) agentv1.Inventory {
	inv := agentv1.Inventory{Taken: c.cfg.Now().UTC(), Kernel: text(read(c.cfg.Proc, "sys/kernel/osrelease"))}
	inv.Firmware, inv.Secure = Firmware(c.cfg.Sys), secureBoot(c.cfg.Sys)
	part := func(name string, f func() error) {
		if err := f(); err != nil {
			inv.Partial = append(inv.Partial, text(fmt.Sprintf("%s: %v", name, err)))
			c.cfg.Log.Warn("a part of the inventory is missing", "part", name, "error", err)
		}
	}
	part("smbios", func() error { return c.system(&inv) })
	part("cpu", func() (err error) { inv.CPUs, err = cpus(c.cfg.Proc); return err })
	part("memory", func() error { return c.memory(&inv.Memory) })
	part("disks", func() (err error) { inv.Disks, err = c.Disks(ctx); return err })
	part("network", func() (err error) { inv.NICs, err = c.nics(); return err })
	part("pci", func() (err error) { inv.PCI, err = c.pci(); return err })
	if inv.TPM == "" {
		inv.TPM = tpm(c.cfg.Sys)
	}
	if c.cfg.BMC != nil {
		part("bmc", func() (err error) { inv.BMC, err = c.cfg.BMC(ctx); return err })
	}
	if c.cfg.Wants != nil {
		part("firmware files", func() error {
			wants, err := c.cfg.Wants()
			for _, w := range wants[:min(len(wants), maxWants)] {
				inv.Wants = append(inv.Wants, text(w))
			}
			return err
		})
	}
	return fit(inv)
}

// fit drops what is needed least until the inventory fits into a report.
func fit(inv agentv1.Inventory) agentv1.Inventory {
	drops := []struct {
		name string
		drop func()
	}{
		{"pci devices", func() { inv.PCI = nil }},
		{"processor flags", func() {
			for i := range inv.CPUs {
				inv.CPUs[i].Flags = nil
			}
		}},
		{"memory modules", func() { inv.Memory.Modules = nil }},
		{"other names of disks", func() {
			for i := range inv.Disks {
				inv.Disks[i].ByID = nil
			}
		}},
		{"all but the first 256 disks", func() { inv.Disks = inv.Disks[:min(len(inv.Disks), 256)] }},
	}
	for _, d := range drops {
		b, err := json.Marshal(inv)
		if err == nil && len(b) <= maxJSON {
			return inv
		}
		d.drop()
		inv.Partial = append(inv.Partial, d.name+": left out, the inventory is too large")
	}
	return inv
}

// memory takes the total from the modules, which count what the kernel reserves too, else from the kernel.
func (c *Collector) memory(m *agentv1.Memory) error {
	for _, d := range m.Modules {
		m.Bytes += d.Bytes
	}
	total, err := memTotal(c.cfg.Proc)
	if m.Bytes < total {
		m.Bytes = total
	}
	return err
}

// Firmware is "uefi" or "bios".
func Firmware(sys string) string {
	if _, err := os.Stat(filepath.Join(sys, "firmware/efi")); err == nil {
		return "uefi"
	}
	return "bios"
}

// secureBoot reads the EFI variable: four bytes of attributes, then 1 when Secure Boot is enforced.
func secureBoot(sys string) bool {
	b := readBytes(filepath.Join(sys, "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"), 16)
	return len(b) == 5 && b[4] == 1
}

// tpm is the version of the first TPM, "" when there is none.
func tpm(sys string) string {
	dir := filepath.Join(sys, "class/tpm/tpm0")
	switch read(dir, "tpm_version_major") {
	case "2":
		return "2.0"
	case "1":
		return "1.2"
	}
	if _, err := os.Stat(filepath.Join(dir, "device/caps")); err == nil { // only TPM 1.x has it, on kernels without the version file
		return "1.2"
	}
	return ""
}
