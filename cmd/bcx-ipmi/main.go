// Command bcx-ipmi is the driver ipmi as a plugin: it drives BMCs over IPMI 2.0 for the appliance that hosts it. Run by
// hand it only says so. It needs ipmitool on the host.
package main

import (
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/plugins/bcx"
)

func main() {
	d := ipmi.New(ipmi.Config{})
	bcx.Main(bcx.Options{PluginVersion: ipmi.Version, Health: d.Health}, d.Definition())
}
