// Package inventory finds out what a machine is made of: SMBIOS, processors, memory, disks, network ports, PCI, TPM,
// firmware mode and the BMC as the host sees it.
//
// Everything it reads comes from file trees whose roots are parameters, is bounded in size and number, and is hostile: text
// of firmware and devices is cleaned of control characters, placeholders are not identities, and a part that cannot be read
// is named in Inventory.Partial while the others go on.
package inventory
