// Package dhcp is a DHCPv4 server for machines that netboot: RFC 2131 with one address per MAC from firmware to
// operating system.
//
// Packets come and go through Conn, so the server is tested with real packets and no root. It answers only on subnets
// in full mode; on others it listens and reports. Leases are durable before they are acknowledged, many in one
// transaction, and are read back at start.
package dhcp
