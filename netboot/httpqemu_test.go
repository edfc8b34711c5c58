package netboot

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// httpOnly makes OVMF boot by HTTP and by nothing else from the network, and then from a disk that holds nothing for UEFI:
// that the firmware tries it next is what counts. pull unplugs the network.
func httpOnly(t *testing.T) (args []string, pull func()) {
	monitor := filepath.Join(t.TempDir(), "monitor")
	args = append(uefi(t), "-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n", "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n",
		"-drive", "format=raw,if=none,id=d0,file="+bootSector(t), "-device", "virtio-blk-pci,drive=d0,bootindex=2", "-monitor", "unix:"+monitor+",server=on,wait=off")
	return args, func() {
		c, err := net.Dial("unix", monitor)
		if err == nil {
			_, err = fmt.Fprintln(c, "set_link n0 off")
			t.Cleanup(func() { _ = c.Close() })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// triesDisk waits until the firmware has given up the network by IPv4 and gone on to the disk. HTTP by IPv6, which stands
// between, would wait for a minute for a server: the cable is pulled.
func (v *vm) triesDisk(t *testing.T, pull func()) {
	t.Helper()
	v.waitText(t, "BdsDxe: failed to", guestPatience)
	pull()
	t.Logf("disk tried after %v", v.waitText(t, "UEFI Misc Device", guestPatience))
}

func TestQEMUIdleHTTPClientStartsItsDisk(t *testing.T) {
	w := newLAN(t)
	_, e := w.serve(newMemStore(labSubnet("br0", "full")), machine(KindDisk), qemuConfig)
	args, pull := httpOnly(t)
	v := w.boot(args...)
	v.waitText(t, "this machine goes on to its disk", guestPatience)
	v.triesDisk(t, pull)
	e.wait(t, "disk.efi", guestPatience, httpGet("/boot/"+ExitFile))
}

// A machine that is nobody's is told no boot file. It must not stop there, and is reported for a person to accept.
func TestQEMUUnknownHTTPClientStartsItsDisk(t *testing.T) {
	w := newLAN(t)
	p := &fakePort{}
	w.serve(newMemStore(labSubnet("br0", "full")), p, qemuConfig)
	args, pull := httpOnly(t)
	w.boot(args...).triesDisk(t, pull)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.found) == 0 || p.found[0].MAC != vmMAC || p.found[0].Arch != "x64" {
		t.Errorf("discovered %+v", p.found)
	}
}

// What the firmware fetches is the machine's own program, whole, and nothing that is kept of it holds the boot's key.
func TestQEMUHTTPClientFetchesItsProgram(t *testing.T) {
	w := newLAN(t)
	p := machine(KindRamdisk)
	p.image = strings.Repeat("no program of UEFI ", 1<<18)
	target := p.targets[vmMAC]
	target.Program = BootPath("k3y", ProgramFile)
	p.targets[vmMAC] = target
	_, e := w.serve(newMemStore(labSubnet("br0", "full")), p, qemuConfig)
	args, pull := httpOnly(t)
	v := w.boot(args...)
	e.wait(t, "the beginning", guestPatience, kind("http.begin"))
	get := httpGet("/boot/KEY/" + ProgramFile)
	e.wait(t, "the whole program", guestPatience, func(x app.Event) bool {
		return get(x) && x.MachineID == "m-vm" && strings.Contains(string(x.Data), fmt.Sprintf(`"method":"GET","name":"/boot/KEY/%s","status":200,"bytes":%d`, ProgramFile, len(p.image)))
	})
	v.triesDisk(t, pull) // it is no program, so the firmware goes on
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.all {
		t.Logf("%s %s %s %s", x.Kind, x.Level, x.Message, x.Data)
		if strings.Contains(string(x.Data)+x.Message, "k3y") {
			t.Errorf("the key is in %+v", x)
		}
	}
}
