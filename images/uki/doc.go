// Package uki makes boot programs for one machine: a unified kernel image (UKI), which UEFI starts without any loader, and
// the CD image that holds it for virtual media.
//
// A UKI is systemd's stub followed by the kernel arguments, the initrds and the kernel as sections of one PE file. The
// kernel and the initramfs are the same for every machine and large; what is a machine's own (its arguments and its boot
// data, a small cpio in a slot of fixed size before the initramfs) is small. So an image is a view: headers and the
// machine's own parts in memory, the rest in the files on disk, read where it lies.
//
// Equal inputs give equal bytes. Firmware fetches twice, in ranges, or asks for the size first; a BMC reads sectors in any
// order: all see one file.
package uki
