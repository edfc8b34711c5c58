package redfish

import (
	"bytes"
	"net/http"
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
