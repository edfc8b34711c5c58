package redfish

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
)

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

// quirkNullRoot reports a service root that is the JSON null, as recorded from a Supermicro X10 (F618H6, 3.80). Its
// collections are where every service has them.
func quirkNullRoot(r *response) bool { return string(bytes.TrimSpace(r.body)) == "null" }

// quirkPowerOnChassis gives the place of the power state for systems that show none: HPE Cray EX nodes show it on their
// chassis. "" when the system shows it.
func quirkPowerOnChassis(sys *document) string {
	if sys.text("PowerState") != "" {
		return ""
	}
	return sys.link("Links", "Chassis")
}

// quirkReadsAsNothing reports a member of the boot override that never reads back: Fujitsu iRMC S4 shows null for enabled
// and mode, Cisco CIMC has no mode. Nothing read cannot contradict what was written.
func quirkReadsAsNothing(shown string) bool { return shown == "" }

// quirkTooSoon reports a refusal of a power change that follows another at once: iDRAC 10 answers 409
// ActionParameterValueConflict for seconds after an off (ironic, redfish power), iLO 400 InvalidOperationForSystemState
// (sushy), others 409.
func quirkTooSoon(f fault) bool {
	return f.status == http.StatusConflict || f.is("InvalidOperationForSystemState", "ActionParameterValueConflict")
}

// quirkHostLink tells the BMC's own network device inside the host (USB or virtual), which is on no wire: iDRAC, iLO and
// OpenBMC list it among the host's interfaces.
func quirkHostLink(d *document) bool {
	return d.text("Links", "HostInterface", "@odata.id") != "" || strings.EqualFold(d.text("EthernetInterfaceType"), "Virtual")
}

// quirkConsoleDrive reports drives that an address cannot be put into: Lenovo XCC shows, beside those for addresses
// (EXT1 to EXT4), the ones of its remote console (Remote1 to Remote4) and of uploaded files (RDOC1, RDOC2).
func quirkConsoleDrive(id string) bool {
	return strings.HasPrefix(id, "Remote") || strings.HasPrefix(id, "RDOC")
}

// quirkNoPort reports a shown address without a port, which says nothing about the port: xFusion and Huawei iBMC lose one
// that is not the protocol's own.
func quirkNoPort(shown *url.URL) bool { return shown.Port() == "" }

// quirkShareOnly reports BMCs whose virtual media come from Windows shares by ways of their own: Supermicro X10 and X11
// (place is Managers/1/VM1, with a VirtualMediaConfig) and Fujitsu iRMC S4 (below the system's ts_fujitsu).
func quirkShareOnly(sys, place *document) bool {
	return place.link("Oem", "Supermicro", "VirtualMediaConfig") != "" || sys.link("Oem", "ts_fujitsu", "VirtualMedia") != ""
}
