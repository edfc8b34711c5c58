// Package ipxe writes the scripts that iPXE runs. They keep to the commands of Debian's build of 2019.
//
// Text that comes from people or machines goes through check before it becomes part of a line: iPXE has no quoting, so
// what could end a line, a command or start an expansion is refused.
package ipxe

import (
	"fmt"
	"path"
	"strings"

	"github.com/better-compute/bcd/app"
)

// maxLine bounds the kernel command line, in bytes: Linux on x86 takes 2048.
const maxLine = 2047

// Ramdisk is what a script that boots the ramdisk needs.
type Ramdisk struct {
	Machine string   // the machine's name, shown on its screen
	Kernel  string   // absolute URL
	Initrds []string // absolute URLs, in the order in which the kernel unpacks them
	Cmdline string   // without initrd=
	Script  string   // absolute URL of this script, to ask again after failures
}

// Render writes the script. After three failures it asks for a fresh one, for ever: the machine waits for an
// appliance that is being restarted, and the workflow's deadline ends the wait.
func (r Ramdisk) Render() (string, error) {
	var b strings.Builder
	names := make([]string, len(r.Initrds))
	for i, u := range r.Initrds {
		names[i] = fmt.Sprintf("%d-%s", i, path.Base(strings.TrimRight(u, "/")))
	}
	fields := append([]string{r.Machine, r.Kernel, r.Script}, r.Initrds...)
	for _, f := range append(fields, names...) {
		if err := word(f); err != nil {
			return "", err
		}
	}
	if err := check("kernelArgs", r.Cmdline); err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "#!ipxe\necho bcd: %s starts the ramdisk\nset tries:int32 0\n:load\nimgfree\n", r.Machine)
	fmt.Fprintf(&b, "kernel --name kernel %s", r.Kernel)
	for _, n := range names {
		b.WriteString(" initrd=" + n) // EFI finds an initrd by its name on the kernel line
	}
	if r.Cmdline != "" {
		b.WriteString(" " + r.Cmdline)
	}
	b.WriteString(" || goto again\n")
	for i, u := range r.Initrds {
		fmt.Fprintf(&b, "initrd --name %s %s || goto again\n", names[i], u)
	}
	b.WriteString("boot || goto again\n" + again(r.Script))
	return b.String(), nil
}

// ISO is what a script that boots a CD image needs.
type ISO struct {
	Machine string // the machine's name, shown on its screen
	URL     string // absolute URL of the image, served with Range
	Script  string // absolute URL of this script, to ask again after failures
}

// isoDrive is the BIOS number of the drive that the image becomes: that of a first CD drive, so that the machine's own disks
// keep theirs. UEFI has no such numbers.
const isoDrive = "0xe0"

// Render writes the script. iPXE reads the image in place, block by block: a BIOS gets it as a CD drive, UEFI firmware as a
// block device whose removable-media loader is started. As with the ramdisk, it tries three times and then asks for a fresh
// script. A loader that gives up and comes back lands there too.
func (i ISO) Render() (string, error) {
	for _, f := range []string{i.Machine, i.URL, i.Script} {
		if err := word(f); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("#!ipxe\necho bcd: %s starts an ISO image\nset tries:int32 0\n:load\nsanboot --no-describe --drive %s %s || goto again\n", i.Machine, isoDrive, i.URL) +
		again(i.Script), nil
}

// again is the end of a script that is tried three times and then asked for anew, for ever.
func again(script string) string {
	return fmt.Sprintf(":again\ninc tries\necho bcd: that failed, trying again\nsleep 3\niseq ${tries} 3 || goto load\n:ask\nchain --replace --autofree %s ||\nsleep 5\ngoto ask\n", script)
}

// Disk renders the script of a machine that has nothing to load: it starts its first disk. A BIOS is asked for the
// disk directly; UEFI firmware goes on in its boot order when iPXE ends with an error, while after success some stop at
// their menu.
func Disk() string {
	return `#!ipxe
echo bcd: nothing to load, going on to the disk
iseq ${platform} efi && goto firmware ||
sanboot --no-describe --drive 0x80 ||
echo bcd: the first disk does not start
:firmware
exit 1
`
}

// Wait renders the script of a machine that cannot be told yet what to do: it asks again.
func Wait(script string) (string, error) {
	if err := word(script); err != nil {
		return "", err
	}
	return fmt.Sprintf("#!ipxe\necho bcd: not ready, asking again\n:ask\nsleep 5\nchain --replace --autofree %s ||\ngoto ask\n", script), nil
}

// Autoexec is the file autoexec.ipxe that newer iPXE asks for before anything else: it goes the usual way by DHCP.
func Autoexec() string { return "#!ipxe\nautoboot ||\nexit 1\n" }

// word checks a field that must stay one word.
func word(s string) error {
	if s == "" || strings.ContainsAny(s, " \t") {
		return app.Errorf(app.Internal, "script-field", "%q cannot stand in a boot script as one word", s)
	}
	return check("script", s)
}

// check refuses what iPXE would not keep as it is: line breaks and control characters, expansions, and the words that
// end a command or start a comment.
func check(field, s string) error {
	if err := app.ValidLine(field, s, maxLine); err != nil {
		return err
	}
	for _, w := range strings.Fields(s) {
		if w == "&&" || w == "||" || w == ";" || strings.HasPrefix(w, "#") {
			return app.Invalid(field, "holds the word %q, which boot scripts do not take as text", w).Do("remove it")
		}
	}
	return nil
}
