// Package flat turns a root file system, which came as a tar archive or as an OCI image, into the stream of a disk image that
// a deploy can put on any machine: a GPT with a BIOS boot partition, an EFI system partition and an ext4 root at the end, GRUB
// for both kinds of firmware, and the few files in the root that a disk needs and a root file system lacks.
//
// Nothing is unpacked, mounted or run. The layers are read twice: once for the tree, from which every place on the disk is
// decided, and once for the content of the files that are left of it, in the order in which they lie on the disk. Memory
// grows with the number of files, not with their size. The same bytes give the same disk: what would be chance derives from
// a digest of them.
//
// Whatever comes is hostile. Names are looked up in the tree alone, where "..", symbolic and hard links lead nowhere else;
// numbers, sizes and texts are bounded.
package flat
