// Package ext4 lays out an ext4 file system from a tree of inodes, without root, without a mount and without random access:
// Plan decides where everything lies, and FS.Regions lists what is not zero in the order of the disk, so that a stream of
// the file system can be made while its files are read once.
//
// The result is what mke2fs would make for a server's root: journal, checksums on all metadata, extents, 64-bit descriptors,
// and a resize inode with room to grow online to 8 TiB. Equal trees and options give equal bytes. What GRUB 2.06 cannot read
// (metadata_csum_seed, orphan_file) is left out.
//
// It is written here because the libraries that exist make file systems that cannot be grown or have no journal. The format
// is that of the kernel's Documentation/filesystems/ext4; e2fsck and the kernel are what it is tested against.
package ext4
