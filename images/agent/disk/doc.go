// Package disk puts an image on a disk: it answers agent.write, agent.verify and agent.configure.
//
// Before the first byte it refuses what cannot work: a disk that is ambiguous, in use, read-only, too small or of another
// sector size than the image was made for, and a machine where another disk carries the same file systems. Then it clears
// the disk's first and last MiB, fetches chunks over parallel connections, checks each against the signed index, writes
// with O_DIRECT, zeroes what the image leaves out with BLKZEROOUT, and reads everything back. The first MiB, and with it the
// partition table, is written last: a disk whose write was cut short does not boot.
//
// Memory is bounded by Config.Workers, not by the image: about 8 MiB a worker.
package disk
