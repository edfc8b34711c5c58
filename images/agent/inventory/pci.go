package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// pci lists the functions of the PCI buses. A machine without PCI has none.
func (c *Collector) pci() ([]agentv1.PCI, error) {
	dir := filepath.Join(c.cfg.Sys, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing PCI devices: %w", err)
	}
	var out []agentv1.PCI
	for _, e := range entries {
		if len(out) == maxPCI {
			return out, fmt.Errorf("there are more than %d PCI devices", maxPCI)
		}
		at := filepath.Join(dir, e.Name())
		hex := func(name string) string { return text(strings.TrimPrefix(read(at, name), "0x")) }
		p := agentv1.PCI{Address: text(e.Name()), Class: hex("class"), Vendor: hex("vendor"), Device: hex("device")}
		if driver, err := filepath.EvalSymlinks(filepath.Join(at, "driver")); err == nil {
			p.Driver = text(filepath.Base(driver))
		}
		out = append(out, p)
	}
	return out, nil
}
