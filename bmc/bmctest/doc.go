// Package bmctest holds what tests of BMC drivers share: a conformance suite that every power, management and inspect
// driver runs; a scripted Redfish BMC over HTTPS with the failure modes of real ones, and a replayer of recorded vendor
// trees; two IPMI BMCs on loopback, one in this process over go-ipmi's server, one that is OpenIPMI's ipmi_sim and drives
// any machine of the test's.
package bmctest
