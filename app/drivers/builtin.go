package drivers

import (
	"encoding/json"

	"github.com/better-compute/bcd/plugins/driver"
)

// The ids of the built-in drivers.
const (
	IDRedfish          = "redfish"
	IDIPXE             = "ipxe"
	IDVirtualMediaBoot = "virtual-media-boot"
	IDImageStream      = "image-stream"
	IDRamdisk          = "ramdisk"
)

// reserved are the ids that no plugin may take, even where the built-in driver is not registered.
var reserved = []string{IDRedfish, IDIPXE, IDVirtualMediaBoot, IDImageStream, IDRamdisk}

// IPXE is the driver that boots machines from the network, over what prepares and ends their permission to.
func IPXE(b driver.Boot) driver.Definition {
	return builtin(IDIPXE, driver.RunsOnSite, "boot", b, []string{"cleanUp", "prepareInstance"}, "netboot")
}

// VirtualMediaBoot is the driver that boots machines from a CD in their BMC's virtual drive, over what puts it there.
func VirtualMediaBoot(b driver.Boot) driver.Definition {
	return builtin(IDVirtualMediaBoot, driver.RunsOnSite, "boot", b, []string{"cleanUp", "prepareInstance"}, "virtual-media-boot")
}

// ImageStream is the driver that writes images through a machine's ramdisk.
func ImageStream(d driver.Deploy) driver.Definition {
	return builtin(IDImageStream, driver.RunsOnRamdisk, "deploy", d, nil, "image-stream")
}

// Ramdisk is the driver that inspects a machine from its ramdisk.
func Ramdisk(i driver.Inspect) driver.Definition {
	return builtin(IDRamdisk, driver.RunsOnRamdisk, "inspect", i, []string{"inspect"}, "inventory")
}

// builtin declares a driver of one kind without configuration.
func builtin(id, runsOn, kind string, impl any, retrySafe []string, capabilities ...string) driver.Definition {
	return driver.Definition{
		ID: id, Version: "1.0.0", RunsOn: runsOn, Capabilities: capabilities,
		Implements: map[string]driver.Factory{kind: func(json.RawMessage) (any, error) { return impl, nil }},
		RetrySafe:  map[string][]string{kind: retrySafe},
	}
}
