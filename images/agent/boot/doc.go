// Package boot starts the operating system on a disk without the firmware, by kexec.
//
// It mounts the disk's file systems read-only, finds what the disk's own boot loader would start by default (a GRUB
// configuration, with or without Boot Loader Specification entries, systemd-boot's or SYSLINUX's entries), joins all initial ramdisks
// of that entry, and loads kernel, initrd and command line with kexec_file_load. A command line without root= is never
// started. Every refusal has a name and is an answer, not an error: the boot through the firmware, which follows, gets round
// it. Before the jump the disks are flushed and the network ports turned off.
//
// GRUB's configuration is a program. The part of its language that distributions generate is interpreted here: variables,
// conditions, functions, menus and submenus, search, the environment block. It is read from an image, so it is hostile:
// size, depth and steps are bounded, and no path leaves the partition it is looked up on.
package boot
