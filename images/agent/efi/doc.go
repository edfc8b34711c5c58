// Package efi reads and writes the boot order of UEFI firmware, through the variables that Linux shows as efivarfs: it answers
// agent.boot-order.
//
// Load options are parsed as UEFI 2.10 section 3.1.3 lays them out, and their device paths as far as they tell what an entry
// starts (section 10.3); everything is kept as it came, so that a load option that is written back is the same bytes. What
// variables hold is hostile: every length is checked and every list bounded.
//
// A write is a success only after it was read back. Firmware whose variables are full, locked or not to be had is a result with
// a named reason, never a failure: no deploy depends on it.
package efi
