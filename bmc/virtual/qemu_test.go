package virtual

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// needQEMU skips a test, saying why, where the emulator is not installed.
func needQEMU(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath(qemuBinary); err != nil {
		t.Skipf("left out: %v (install qemu-system-x86)", err)
	}
}

// bootCode is a 16-bit program for 0000:7c00, as a boot sector and as a network boot program: it prints text on COM1,
// then runs last.
func bootCode(text string, last ...byte) []byte {
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0, 0, // mov si, text
		0xba, 0xf8, 0x03, // mov dx, 0x3f8
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz end
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp next
	}
	code = append(code, last...)
	code = append(code, 0xf4, 0xeb, 0xfd) // hlt; jmp
	at := 0x7c00 + len(code)
	code[5], code[6] = byte(at), byte(at>>8)
	code = append(append(code, text...), '\n', 0)
	sector := make([]byte, 512)
	copy(sector, code)
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// Ends for bootCode.
var (
	thenReset    = []byte{0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee}       // out 0xcf9, 6
	thenPowerOff = []byte{0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef} // out 0x604, 0x2000: ACPI S5 of q35
)

// lines collects the console of a machine.
func lines(t *testing.T) (func(Line), <-chan string) {
	t.Helper()
	ch := make(chan string, 1024)
	return func(l Line) {
		select {
		case ch <- l.Text:
		default:
		}
	}, ch
}

// patience bounds waits for what must come: a loaded machine is slow, and only a test that fails waits so long.
const patience = 5 * time.Minute

// until reads console lines up to one that matches.
func until(t *testing.T, ch <-chan string, want string) {
	t.Helper()
	re := regexp.MustCompile(want)
	limit := time.After(patience)
	var seen []string
	for {
		select {
		case l := <-ch:
			if seen = append(seen, l); re.MatchString(l) {
				return
			}
		case <-limit:
			t.Fatalf("no console line matches %q; seen %q", want, seen)
		}
	}
}

// TestQEMUFollowsGuestReboot boots the network once by override, lets the guest reset itself, and sees it come up from its
// disk with the power on all the time: what a deploy that ends in a firmware reboot relies on.
func TestQEMUFollowsGuestReboot(t *testing.T) {
	needQEMU(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "boot.0"), bootCode("booted from network", thenReset...))
	disk := filepath.Join(dir, "disk,with comma.raw")
	write(t, disk, append(bootCode("booted from disk", thenPowerOff...), make([]byte, 1<<20)...))

	cfg := config(t)
	onLine, out := lines(t)
	cfg.Dir, cfg.OnLine, cfg.Hypervisor = dir, onLine, nil
	cfg.Disks = []Disk{{Path: disk, Bus: NVMe, Serial: "BCD-DISK-1"}}
	cfg.NICs = []NIC{{MAC: "00:00:5e:00:53:01", Netdev: "user,restrict=on,tftp=" + dir + ",bootfile=boot.0"}}
	m := start(t, cfg)
	c := client(t, m)
	c.patch(t, `{"Boot":{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"Legacy"}}`, 200)
	c.reset(t, "On", 204)
	until(t, out, "booted from network")
	until(t, out, "booted from disk")
	waitPower(t, m, "Off")
	if o := m.Override(); o.Enabled != Disabled {
		t.Errorf("override after its boot: %+v, want it spent", o)
	}
	if b, err := os.ReadFile(filepath.Join(dir, consoleLog)); err != nil || !bytes.Contains(b, []byte("booted from disk")) {
		t.Errorf("console log: %v, %d bytes without the line", err, len(b))
	}
}

// TestQEMUForceOffAndSocket cuts the power of a guest that ignores the power key, and reads the console through its socket.
func TestQEMUForceOffAndSocket(t *testing.T) {
	needQEMU(t)
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk.raw")
	write(t, disk, append(bootCode("hello from sector 0"), make([]byte, 1<<20)...))
	cfg := config(t)
	onLine, out := lines(t)
	cfg.Dir, cfg.OnLine, cfg.Hypervisor = dir, onLine, nil
	cfg.Disks, cfg.NICs = []Disk{{Path: disk}, {Path: filepath.Join(dir, "new.raw"), Bytes: 1 << 20, Bus: AHCI, Serial: "S2"}, {Path: filepath.Join(dir, "third.raw"), Bytes: 1 << 20, Bus: SCSI, Serial: "S3"}}, nil
	m := start(t, cfg)
	c := client(t, m)
	conn, err := net.Dial("unix", m.Console().SocketPath())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.reset(t, "ForceOn", 204)
	until(t, out, "hello from sector 0")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if n, err := conn.Read(make([]byte, 1)); n != 1 {
		t.Errorf("nothing on the console socket: %v", err)
	}
	c.reset(t, "Nmi", 204)
	c.reset(t, "GracefulShutdown", 204)
	if p := m.PowerState(); p != "PoweringOff" {
		t.Errorf("after a power key that is ignored: %s", p)
	}
	c.reset(t, "ForceOff", 204)
	waitPower(t, m, "Off")
	m.Close()
	if _, err := os.Stat(filepath.Join(dir, consoleSocket)); !os.IsNotExist(err) {
		t.Errorf("the console socket is still there: %v", err)
	}
}

// TestQEMUFailsToStart says what QEMU said, and the machine is off.
func TestQEMUFailsToStart(t *testing.T) {
	needQEMU(t)
	cfg := config(t)
	cfg.Dir, cfg.Hypervisor = t.TempDir(), nil
	cfg.NICs = []NIC{{MAC: "00:00:5e:00:53:01", Tap: "bcdt-none0", Model: "e1000e"}}
	cfg.Netns = "bcdt-virtual-no-such-namespace"
	m := start(t, cfg)
	c := client(t, m)
	c.reset(t, "On", 204)
	waitPower(t, m, "Off")
	health := c.system(t)["Status"].(map[string]any)
	if health["Health"] != "Critical" {
		t.Errorf("status after a failed start: %v", health)
	}
}

// TestQEMUBootsUEFI sees OVMF come up with the machine's own variable store, which is kept.
func TestQEMUBootsUEFI(t *testing.T) {
	needQEMU(t)
	if _, err := os.Stat(ovmfCode); err != nil {
		t.Skipf("left out: %v (install ovmf)", err)
	}
	cfg := config(t)
	cfg.Dir, cfg.Hypervisor, cfg.Firmware, cfg.NICs = t.TempDir(), nil, "uefi", nil
	onLine, out := lines(t)
	cfg.OnLine = onLine
	m := start(t, cfg)
	client(t, m).reset(t, "On", 204)
	until(t, out, "BdsDxe")
	if _, err := os.Stat(filepath.Join(cfg.Dir, varsFile)); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// waitPower polls as a Redfish client does, with a bound on time, not on count.
func waitPower(t *testing.T, m *Machine, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for m.PowerState() != want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("power is %s, want %s", m.PowerState(), want)
		}
	}
}
