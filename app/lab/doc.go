// Package lab is a rack without hardware: a network namespace with a bridge, virtual machines on it that are reached only
// through their virtual BMCs, and a driver that takes them through their life by the public API.
//
// It never touches a real interface. The appliance's provisioning side lives inside the namespace: DHCP, TFTP, HTTP and the
// agents' port are sockets opened there, by Network.Do or Network.Listen. A socket stays in the namespace it was opened in,
// whichever thread uses it later, so one process serves the namespace and, with its console, the host.
package lab
