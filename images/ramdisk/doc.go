// Package ramdisk makes what a machine boots from the network: Debian's kernel, an initramfs with server drivers, u-root
// and the agent, the first cpio that carries one boot's trust, and the loaders that fetch them.
//
// Build works in pure Go, without root, and gives the same bytes for the same inputs. The initramfs is two zstd frames,
// each a whole cpio, which the kernel unpacks one after the other: drivers and firmware first, which take long to
// compress and change with the kernel, then the busybox, which changes with bcd.
//
// # Who is init
//
// The agent's own command is /init (a link into the busybox), and u-root's init is left out. Measured under QEMU without
// KVM, u-root's init with the agent as its uinit took 0.3 s longer to the agent's first line: one more start of the
// 16 MB program, and work (sysctl, hostname, a second round of mounts) that this ramdisk does not want. It would also
// leave reaping, the power key, drivers of devices that turn up late and a crashed agent to nobody. Package
// images/agent/early does these as PID 1 and runs the agent as its child, so that a crash of the agent is a restart and
// not a kernel panic.
package ramdisk
