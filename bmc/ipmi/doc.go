// Package ipmi drives BMCs over IPMI 2.0, by ipmitool's lanplus interface.
//
// Every operation is one or more runs of ipmitool, each a process of its own with a fixed environment and at most 30
// seconds. The password goes through a pipe that ipmitool reads once, the BMC key through its standard input: neither is
// ever an argument or in the environment.
//
// What ipmitool says is believed only as far as it can be checked: power changes and boot devices are read back, a
// sensor repository is listed only when it holds records (an empty one would be erased by the listing), and everything
// it prints is text from a machine, cleaned and bounded.
//
// The package imports the driver contract alone, so that the plugin made of it stays small.
package ipmi
