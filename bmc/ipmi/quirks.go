package ipmi

import "github.com/better-compute/bcd/plugins/driver"

// The ids that OpenIPMI's simulator has in its documentation and sample configuration.
const (
	simulatorMaker   = "4753"
	simulatorProduct = "3842"
)

// quirkDeviceOnly reports OpenIPMI's ipmi_sim, which hands only the device of the boot flags to its chassis program and
// always reads the other bits as zero (lanserv of OpenIPMI 2.0.33). On hardware such flags are without effect.
func (o *operations) quirkDeviceOnly(ctx *driver.Context, l *login) (bool, error) {
	a, err := o.ask(ctx, l, words("mc", "info"))
	if err != nil {
		return false, err
	}
	mc := parseMC(a.stdout)
	return mc.makerID == simulatorMaker && mc.productID == simulatorProduct, nil
}
