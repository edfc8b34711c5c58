package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// gadgetDrivers drive network ports that another computer emulates over USB. In a server that is the BMC: HPE, Lenovo, Dell,
// Supermicro and AMI boards all use one of them for the host interface.
var gadgetDrivers = map[string]bool{"cdc_ether": true, "cdc_eem": true, "cdc_ncm": true, "cdc_subset": true, "rndis_host": true}

// Ports lists network ports as they are now.
func (c *Collector) Ports() ([]agentv1.NIC, error) { return c.nics() }

// nics lists network ports with an Ethernet address.
func (c *Collector) nics() ([]agentv1.NIC, error) {
	dir := filepath.Join(c.cfg.Sys, "class/net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing network ports: %w", err)
	}
	var heard map[string]agentv1.LLDP
	if c.cfg.LLDP != nil {
		heard = c.cfg.LLDP()
	}
	var out []agentv1.NIC
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if read(at, "type") != "1" { // ARPHRD_ETHER
			continue
		}
		if len(out) == maxNICs {
			return out, fmt.Errorf("there are more than %d network ports", maxNICs)
		}
		n := readNIC(at, e.Name())
		n.Boot = c.cfg.BootMAC != "" && strings.EqualFold(n.MAC, c.cfg.BootMAC)
		if l, ok := heard[n.Name]; ok {
			n.LLDP = &l
		}
		if c.cfg.Addrs != nil {
			n.Addrs = c.cfg.Addrs(n.Name)
		}
		out = append(out, n)
	}
	return out, nil
}

func readNIC(at, name string) agentv1.NIC {
	n := agentv1.NIC{Name: text(name), MAC: strings.ToLower(text(read(at, "address"))), Link: read(at, "carrier") == "1"}
	device, err := filepath.EvalSymlinks(filepath.Join(at, "device"))
	if err != nil {
		n.Virtual = true
		return n
	}
	if driver, err := filepath.EvalSymlinks(filepath.Join(device, "driver")); err == nil {
		n.Driver = text(filepath.Base(driver))
	}
	if n.Link {
		n.Speed = max(number(read(at, "speed")), 0) // -1: the driver does not know
	}
	n.PCI = controller(device)
	n.BMCUSB = strings.Contains(device, "/usb") && gadgetDrivers[n.Driver]
	return n
}

// MACs lists the addresses of the ports that identify the machine: devices, and not the BMC's own port.
func MACs(sys string) []string {
	var out []string
	dir := filepath.Join(sys, "class/net")
	entries, _ := os.ReadDir(dir) // a machine without a network has no addresses to tell
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if read(at, "type") != "1" || len(out) == maxNICs {
			continue
		}
		if n := readNIC(at, e.Name()); !n.Virtual && !n.BMCUSB && n.MAC != "" {
			out = append(out, n.MAC)
		}
	}
	return out
}
