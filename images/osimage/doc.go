// Package osimage builds a disk image of Debian 12 that a deploy can put on a machine: a GPT with a BIOS boot partition, an
// EFI system partition and an ext4 root at the end, so that it can grow; GRUB for both kinds of firmware; a grub.cfg written
// by Debian's own grub-mkconfig; cloud-init that reads a NoCloud seed; an SSH server; a console on the first serial port.
//
// The root file system comes from mmdebstrap, which needs root. Nothing is mounted and no loop device is used: the disk is
// assembled in a file by sfdisk, mkfs.vfat, mtools and mke2fs, and GRUB's boot code is written by this package. Commands
// run in a mount namespace of their own, so that a killed build leaves no mount behind.
package osimage
