package netboot

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/bmc/virtual"
)

const (
	ovmfCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"
	ipxeDir  = "/usr/lib/ipxe"
	vmMAC    = app.MAC("52:54:00:77:00:21")
)

// guestPatience bounds each wait for a guest. Its firmware takes half a minute on an idle machine, and several where other
// tests run; only a test that fails waits so long.
const guestPatience = 5 * time.Minute

// newLAN is a namespace with a bridge "br0" at 10.77.0.1 and a tap for one guest.
func newLAN(t *testing.T) *wire {
	t.Helper()
	if os.Getenv("BCD_QEMU") == "" {
		t.Skip("left out: firmware in QEMU is tried only with BCD_QEMU=1, it takes a processor for half a minute")
	}
	for _, p := range []string{ovmfCode, filepath.Join(ipxeDir, "snponly.efi"), "/dev/net/tun"} {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("left out: %v", err)
		}
	}
	need(t, "qemu-system-x86_64")
	w := newWire(t)
	for _, args := range []string{
		"addr flush dev srv0", "link add br0 type bridge stp_state 0 forward_delay 0", "link set br0 address 02:77:00:00:00:01 up",
		"addr add 10.77.0.1/24 dev br0", "tuntap add dev tap0 mode tap", "link set tap0 master br0 up",
	} {
		run(t, "ip", append([]string{"-n", w.srv}, strings.Fields(args)...)...)
	}
	return w
}

// vm is a running guest whose serial console is collected.
type vm struct {
	started time.Time
	mu      sync.Mutex
	console bytes.Buffer
	more    chan struct{}
}

func (v *vm) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.more)
	v.more = make(chan struct{})
	return v.console.Write(b)
}

func (v *vm) text() (string, chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.console.String(), v.more
}

func (v *vm) waitText(t *testing.T, want string, limit time.Duration) time.Duration {
	t.Helper()
	deadline := time.After(limit)
	for {
		s, more := v.text()
		if strings.Contains(s, want) {
			return time.Since(v.started).Round(100 * time.Millisecond)
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("the console never said %q:\n%s", want, s)
		}
	}
}

func (w *wire) boot(args ...string) *vm {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	all := append([]string{
		"netns", "exec", w.srv, "qemu-system-x86_64", "-cpu", virtual.Processor, "-M", "q35", "-m", "512", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-uuid", "01234567-89ab-cdef-0123-456789abcdef", "-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no",
	}, args...)
	cmd := exec.CommandContext(ctx, "ip", all...)
	v := &vm{started: time.Now(), more: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = v, v
	in, err := cmd.StdinPipe()
	if err == nil {
		err = child.Start(cmd)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = in.Close()
		cancel()
		_ = cmd.Wait()
		if s, _ := v.text(); w.t.Failed() {
			w.t.Log(s)
		}
	})
	return v
}

func bios() []string {
	return []string{"-boot", "n", "-device", "virtio-net-pci,netdev=n0,mac=" + string(vmMAC)}
}

func uefi(t *testing.T) []string {
	vars := filepath.Join(t.TempDir(), "vars.fd")
	in, err := os.ReadFile(ovmfVars)
	if err == nil {
		err = os.WriteFile(vars, in, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + ovmfCode, "-drive", "if=pflash,format=raw,unit=1,file=" + vars,
		"-device", "virtio-net-pci,netdev=n0,mac=" + string(vmMAC) + ",bootindex=1,romfile=",
	}
}

// bootSector is a disk whose boot sector writes a word to the serial port and stops.
func bootSector(t *testing.T) string {
	code := []byte{0xfa, 0xba, 0xf8, 0x03} // cli; mov dx, 0x3f8
	for _, c := range []byte("DISK-STARTED\n") {
		code = append(code, 0xb0, c, 0xee) // mov al, c; out dx, al
	}
	code = append(code, 0xf4) // hlt
	disk := make([]byte, 1<<20)
	copy(disk, code)
	disk[510], disk[511] = 0x55, 0xaa
	name := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(name, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// machine makes a port that knows the guest.
func machine(k Kind) *fakePort {
	return &fakePort{targets: map[app.MAC]Target{vmMAC: {
		MachineID: "m-vm", Name: "node1", Kind: k, Kernel: "/boot/kernel", Initrds: []string{"/boot/k3y/bootdata.cpio"}, Cmdline: "console=ttyS0",
	}}}
}

// qemuConfig serves Debian's iPXE, and no kernel: what follows the script is not this package's.
func qemuConfig(c *Config) {
	c.Loaders = os.DirFS(ipxeDir)
	c.Mounts = []Mount{{Prefix: "/boot/kernel", Open: func(context.Context, string) (*os.File, error) { return nil, fs.ErrNotExist }}}
}

func httpGet(path string) func(app.Event) bool {
	return func(x app.Event) bool {
		return x.Kind == "http.get" && strings.Contains(string(x.Data), `"name":"`+path)
	}
}

func TestQEMUFirmwareReachesTheRamdisk(t *testing.T) {
	for name, args := range map[string]func(*testing.T) []string{
		"BIOS": func(*testing.T) []string { return bios() }, "UEFI": uefi,
	} {
		t.Run(name, func(t *testing.T) {
			w := newLAN(t)
			_, e := w.serve(newMemStore(labSubnet("br0", "full")), machine(KindRamdisk), qemuConfig)
			v := w.boot(args(t)...)
			e.wait(t, "script", guestPatience, kind("ipxe.script"))
			t.Logf("script after %v", time.Since(v.started).Round(100*time.Millisecond))
			e.wait(t, "kernel", guestPatience, httpGet("/boot/kernel"))
			// There is no kernel: iPXE tries again, then asks for a fresh script.
			e.waitFor(t, "second script", guestPatience, 2, kind("ipxe.script"))
		})
	}
}

func TestQEMUIdleMachineStartsItsDisk(t *testing.T) {
	t.Run("BIOS", func(t *testing.T) {
		w := newLAN(t)
		w.serve(newMemStore(labSubnet("br0", "full")), machine(KindDisk), qemuConfig)
		v := w.boot(append(bios(), "-drive", "format=raw,if=virtio,file="+bootSector(t))...)
		t.Logf("disk after %v", v.waitText(t, "DISK-STARTED", guestPatience))
	})
	t.Run("UEFI", func(t *testing.T) {
		w := newLAN(t)
		w.serve(newMemStore(labSubnet("br0", "full")), machine(KindDisk), qemuConfig)
		disk := []string{
			"-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n", // else IPv6 comes before the disk, and waits
			"-drive", "format=raw,if=none,id=d0,file=" + bootSector(t), "-device", "virtio-blk-pci,drive=d0,bootindex=2",
		}
		v := w.boot(append(uefi(t), disk...)...)
		// The disk holds nothing for UEFI: that the firmware tries it next is what counts.
		t.Logf("disk tried after %v", v.waitText(t, "UEFI Misc Device", guestPatience))
	})
}

// Case 5 with the firmware that it is about: another server gives the addresses, we say what to boot.
func TestQEMUBesideAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		args func(*testing.T) []string
		mode string
	}{
		"BIOS proxy": {func(*testing.T) []string { return bios() }, app.SubnetProxy},
		"UEFI proxy": {uefi, app.SubnetProxy},
		"UEFI HTTP only": {func(t *testing.T) []string {
			return append(uefi(t), "-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n", "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n")
		}, app.SubnetHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLAN(t)
			other := namespace(t, "d")
			w.plug(other, "d0", "10.77.0.2/24")
			dnsmasq(t, other)
			store := newMemStore(labSubnet("br0", c.mode))
			_, e := w.serve(store, machine(KindRamdisk), qemuConfig)
			v := w.boot(c.args(t)...)
			x := e.wait(t, "script", guestPatience, kind("ipxe.script"))
			t.Logf("script after %v", time.Since(v.started).Round(100*time.Millisecond))
			if x.MachineID != "m-vm" || len(store.leases) != 0 {
				t.Errorf("%+v, leases %v", x, store.leases)
			}
			e.wait(t, "kernel", guestPatience, httpGet("/boot/kernel"))
		})
	}
}
