package redfish

import "strings"

// quirkFullBoot reports makers whose boot override must be written with target, enabled and mode together: Supermicro
// (a target alone is refused or lands in legacy mode, Redfishtool#106) and boards on AMI MegaRAC such as ASRock Rack,
// Gigabyte and Quanta (ironic, redfish management).
func quirkFullBoot(vendor string) bool {
	for _, v := range []string{"supermicro", "asrock", "gigabyte", "quanta", "american megatrends", "ami"} {
		if vendor == v || strings.HasPrefix(vendor, v+" ") {
			return true
		}
	}
	return false
}
