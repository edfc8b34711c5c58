package ipmi

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// management implements driver.Management.
type management struct{ *operations }

// bootDevices are ipmitool's words for the devices, and the code of each in bits 5 to 2 of the second byte of the boot
// flags (IPMI 2.0, table 28-14, parameter 5).
var bootDevices = map[driver.BootDevice]struct {
	word string
	code byte
}{
	driver.BootNone:  {"none", 0x0},
	driver.BootPXE:   {"pxe", 0x1},
	driver.BootDisk:  {"disk", 0x2},
	driver.BootCDROM: {"cdrom", 0x5},
	driver.BootBIOS:  {"bios", 0x6},
}

// The bits of the first byte of the boot flags.
const (
	flagValid      = 0x80
	flagPersistent = 0x40
	flagEFI        = 0x20
)

// keepFlags is Set System Boot Options, parameter 3, all bits: the flags stay valid until the next boot. Without it a
// BMC drops them 60 s after they were set unless the machine was told to start meanwhile.
var keepFlags = words("raw", "0x00", "0x08", "0x03", "0x1f")

// bootFlags are what a BMC stores about the next boot.
type bootFlags struct {
	valid, persistent, efi bool
	code                   byte // of the device
}

// SetBootDevice writes the boot flags and returns when they read back as wished, or fails with not-applied. ipmitool
// sends them first; when it loses a bit (builds of 2018 and 2019 kept only the last option) they are sent as raw bytes.
func (m management) SetBootDevice(ctx *driver.Context, device driver.BootDevice, options driver.BootOptions) (driver.BootResult, error) {
	dev, known := bootDevices[device]
	if !known {
		return driver.BootResult{}, driver.Errorf(driver.CodeInvalidArgs, "the boot device must be pxe, disk, cdrom, bios or none, not %q", clip(string(device), 40))
	}
	l, err := m.login(ctx)
	if err != nil {
		return driver.BootResult{}, err
	}
	wish := bootFlags{valid: true, persistent: options.Persistent, code: dev.code}
	var notes []string
	if wish.efi, notes, err = m.mode(ctx, l, options.UEFI); err != nil {
		return driver.BootResult{}, err
	}
	if _, err := m.ask(ctx, l, keepFlags); err != nil { // a BMC that refuses it still takes the flags
		return driver.BootResult{}, err
	}
	result, err := m.write(ctx, l, wish, dev.word)
	result.Notes = append(notes, result.Notes...)
	return result, err
}

// mode decides the EFI bit: as asked, else as the BMC has it. IPMI cannot leave it alone, as it is part of the flags.
func (m management) mode(ctx *driver.Context, l *login, uefi *bool) (efi bool, notes []string, err error) {
	if uefi != nil {
		return *uefi, nil, nil
	}
	a, err := m.ask(ctx, l, readFlags)
	if err != nil {
		return false, nil, err
	}
	if stored, ok := parseBootFlags(a.stdout); ok && stored.efi {
		return true, nil, nil
	}
	return false, []string{"The firmware mode was not given and the BMC shows none, so the machine was asked to boot in legacy mode."}, nil
}

// write tries each form of writing until one reads back.
func (m management) write(ctx *driver.Context, l *login, wish bootFlags, word string) (driver.BootResult, error) {
	var last error
	for _, form := range []struct {
		name string
		c    command
	}{{"bootdev", wish.bootdev(word)}, {"raw", wish.raw()}} {
		if refused, err := m.writeForm(ctx, l, form.c, word); err != nil {
			return driver.BootResult{}, err
		} else if refused != nil {
			last = refused
			continue
		}
		stored, err := m.readBack(ctx, l)
		if err != nil {
			return driver.BootResult{}, err
		}
		result := stored.result(form.name)
		if stored == wish || wish.code == 0 && stored.code == 0 {
			return result, nil
		}
		if stored.code == wish.code {
			kept, err := m.quirkDeviceOnly(ctx, l)
			if err != nil {
				return result, err
			}
			if kept {
				result.Notes = []string{"This simulator keeps the boot device only: it shows neither how long the setting holds nor the firmware mode."}
				return result, nil
			}
		}
		last = driver.Errorf(driver.CodeNotApplied, "the BMC at %s accepted the boot device %s (%s), and reads back %s", l.target, word, wish, stored)
	}
	return driver.BootResult{}, last
}

// writeForm writes the flags once. refused is the BMC's answer when it says no. The exit status proves nothing: ipmitool
// 1.8.19 ends with 0 after a refusal.
func (m management) writeForm(ctx *driver.Context, l *login, c command, word string) (refused, err error) {
	a, err := m.ask(ctx, l, c)
	if err != nil {
		return nil, err
	}
	if a.failed() || c.words[0] != "raw" && !hasLine(a.stdout, "Set Boot Device to "+word) {
		return l.fault(c, a), nil
	}
	return nil, nil
}

func hasLine(text, want string) bool {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == want {
			return true
		}
	}
	return false
}

var readFlags = words("chassis", "bootparam", "get", "5")

// readBack reads the boot flags. OpenBMC answers an error when something else than IPMI set them to a value that IPMI
// has no word for.
func (m management) readBack(ctx *driver.Context, l *login) (bootFlags, error) {
	a, err := m.demand(ctx, l, readFlags)
	if err != nil {
		return bootFlags{}, err
	}
	stored, ok := parseBootFlags(a.stdout)
	if !ok {
		return stored, driver.Errorf(driver.CodeBMCError, "the BMC at %s does not show its boot flags: %s", l.target, l.firstLine(a)).Again()
	}
	return stored, nil
}

// bootdev is the wish in ipmitool's words.
func (f bootFlags) bootdev(word string) command {
	c := words("chassis", "bootdev", word)
	var options []string
	if f.efi {
		options = append(options, "efiboot")
	}
	if f.persistent {
		options = append(options, "persistent")
	}
	if options != nil {
		c.words = append(c.words, "options="+strings.Join(options, ","))
	}
	return c
}

// raw is the wish as Set System Boot Options, parameter 5.
func (f bootFlags) raw() command {
	first := byte(flagValid)
	if f.persistent {
		first |= flagPersistent
	}
	if f.efi {
		first |= flagEFI
	}
	return words("raw", "0x00", "0x08", "0x05", fmt.Sprintf("0x%02x", first), fmt.Sprintf("0x%02x", f.code<<2), "0x00", "0x00", "0x00")
}

// parseBootFlags reads "chassis bootparam get 5". The parameter's own mark and the flags' bit must both say valid: BMCs
// of Supermicro keep stale flags readable with either off.
func parseBootFlags(text string) (bootFlags, bool) {
	const locked, data = "Boot parameter 5 is invalid/locked", "Boot parameter data: "
	for line := range strings.Lines(text) {
		digits, ok := strings.CutPrefix(strings.TrimSpace(line), data)
		if !ok {
			continue
		}
		b, err := hex.DecodeString(strings.TrimSpace(digits))
		if err != nil || len(b) < 2 || len(b) > 16 {
			return bootFlags{}, false
		}
		return bootFlags{
			valid:      b[0]&flagValid != 0 && !hasLine(text, locked),
			persistent: b[0]&flagPersistent != 0,
			efi:        b[0]&flagEFI != 0,
			code:       b[1] >> 2 & 0xf,
		}, true
	}
	return bootFlags{}, false
}

// result words the flags for the caller.
func (f bootFlags) result(form string) driver.BootResult {
	r := driver.BootResult{Target: f.device(), Enabled: "Once", Mode: "Legacy", Form: form}
	if f.persistent {
		r.Enabled = "Continuous"
	}
	if !f.valid {
		r.Enabled = "Disabled"
	}
	if f.efi {
		r.Mode = "UEFI"
	}
	return r
}

func (f bootFlags) device() string {
	for _, d := range bootDevices {
		if d.code == f.code {
			return d.word
		}
	}
	return fmt.Sprintf("device 0x%x", f.code)
}

// String gives "pxe, once, UEFI".
func (f bootFlags) String() string {
	r := f.result("")
	return r.Target + ", " + strings.ToLower(r.Enabled) + ", " + r.Mode
}
