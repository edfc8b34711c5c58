// Package virtual is a virtual machine with its own virtual BMC: one Redfish service over HTTPS per machine, driving QEMU.
//
// It stands in for hardware in the lab and in tests, so it behaves as hardware does: a reset is accepted before it is
// done and PowerState passes through PoweringOn and PoweringOff; a one-shot boot override is consumed by the next boot,
// whether that comes from the BMC or from the guest itself; a graceful shutdown is an ACPI power key which a guest may
// ignore; sessions are few; a write with a stale ETag is refused. Its two virtual drives, a CD and a USB stick, fetch their
// images over HTTP from the machine's own network and show them when they are whole; the guest sees them from its next start
// on, and an ejection at once.
//
// Machine is the BMC and the power state. What it switches is a Hypervisor: QEMU, or Fake, which has no guest at all and
// lets tests of other packages use the Redfish face without an emulator.
package virtual
