package ramdisk

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// BootDataSlot is the room kept for a boot-data cpio where it must have one size, in bytes.
const BootDataSlot = 16 << 10

// BootDataCPIO is a whole, uncompressed newc cpio that holds d at agentv1.BootDataPath, mode 0600. It goes FIRST among the
// initrds; the kernel unpacks it like the rest, and it is never printed, as the kernel's command line is. Its length is a
// multiple of four, as the kernel wants of an initrd that another one follows. Equal input gives equal bytes, so that a
// loader that fetches twice, or in ranges, sees one file.
func BootDataCPIO(d agentv1.BootData) ([]byte, error) { return BootDataCPIOIn(d, 0) }

// BootDataCPIOIn is BootDataCPIO filled up with zeros, which the kernel skips, to exactly slot bytes: the place kept for
// it in an image that is made once and patched per boot. A slot of 0 takes the size that comes.
func BootDataCPIOIn(d agentv1.BootData, slot int) ([]byte, error) {
	doc, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encoding boot data: %w", err)
	}
	a := newArchive()
	a.file(agentv1.BootDataPath, doc, 0o600)
	var b bytes.Buffer
	if _, err := a.write(&b); err != nil {
		return nil, err
	}
	b.Write(make([]byte, -b.Len()&3))
	switch {
	case slot == 0:
		return b.Bytes(), nil
	case slot%4 != 0:
		return nil, fmt.Errorf("boot-data slot of %d bytes is not a multiple of four", slot)
	case b.Len() > slot:
		return nil, app.Errorf(app.TooLarge, "boot-data-too-large", "the boot data of machine %q takes %d bytes, its slot has %d", d.MachineID, b.Len(), slot).
			Do("give the machine fewer rescue keys or the site fewer addresses")
	}
	b.Write(make([]byte, slot-b.Len()))
	return b.Bytes(), nil
}
