package redfish

import "strings"

// quirkFullBoot reports makers, in lower case, whose boot override must be written with target, enabled and mode together: Supermicro
// (a target alone is refused or lands in legacy mode, Redfishtool#106) and boards on AMI MegaRAC such as ASRock Rack,
// Gigabyte and Quanta (ironic, redfish management).
func quirkFullBoot(maker string) bool {
	for _, prefix := range []string{"supermicro", "super micro", "asrock", "gigabyte", "giga-byte", "quanta", "american megatrends"} {
		if strings.HasPrefix(maker, prefix) {
			return true
		}
	}
	return maker == "ami"
}
