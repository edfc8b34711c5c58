// Package network brings a machine in the ramdisk onto its network: every port up, and an address by DHCP on the port that
// netbooted, or on another when that one gives none.
package network
