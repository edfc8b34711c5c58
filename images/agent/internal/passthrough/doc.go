// Package passthrough sends commands of their own protocol to disks: NVMe admin commands, SCSI commands, and ATA commands
// inside them. It reads how they ended, in each form in which disks, bridges and kernels say so, and the one page in which an
// ATA disk says what it is. What a command means, and whether it may be sent, is for the caller to know.
package passthrough
