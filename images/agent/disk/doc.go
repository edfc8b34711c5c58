// Package disk puts an image on a disk: it answers agent.write, agent.verify and agent.configure.
//
// Nothing is written while an order can still be known to fail: when its rule fits several disks, when the disk is in use,
// read-only, too small or of another sector size than the image was made for, and when another disk of the machine carries
// the same file systems. Then it empties both ends of the disk, a MiB each, looks for what the disk holds of the image
// already (below), fetches the other chunks over parallel connections, checks each against the signed index, writes with
// O_DIRECT, zeroes what the image leaves out with BLKZEROOUT, and reads everything back. The first MiB, and with it the
// partition table, is written last: a disk whose write was cut short does not boot.
//
// What a disk holds already is of two kinds: what an earlier write of the same image left when it was cut short, which eight
// chunks tell, and chunks of an image that was deployed before, whose index the order names (a seed). Every such chunk is
// read and compared with its BLAKE3 before it is left in place or moved; what is not as it should be is fetched. So an order
// may be repeated, and cut short, at any time.
//
// Memory is bounded by Config.Workers, not by the image: about 8 MiB a worker, or 48 MiB for moves that wait for each other,
// before the workers start; and 100 bytes a chunk for each index.
package disk
