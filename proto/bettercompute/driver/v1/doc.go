// Package driverv1 is the wire of the bcx protocol: messages and gRPC service of driver.proto, from which everything else
// here is generated. A plugin in another language is generated from the same file.
package driverv1

//go:generate sh ../../../generate.sh bettercompute/driver/v1/driver.proto
