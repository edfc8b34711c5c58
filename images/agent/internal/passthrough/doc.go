// Package passthrough sends commands of their own protocol to disks: NVMe admin commands, SCSI commands, and ATA commands
// inside them. What a command means, and whether it may be sent, is for the caller to know.
package passthrough
