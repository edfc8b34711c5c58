package agent_test

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/agent/agenttest"
	"github.com/better-compute/bcd/images/agent/efi"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/uki"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Where Debian puts UEFI for virtual machines.
const (
	ovmfCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	ovmfVars = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// systemMovesFirst is what an installer does: it adds an entry of its own and puts it in front.
const systemMovesFirst = `v=/sys/firmware/efi/efivars
g=8be4df61-93ca-11d2-aa0d-00e098032b8c
cat /order/entry >$v/Boot0099-$g || exit 1
cat /order/first >/tmp/order
dd if=$v/BootOrder-$g bs=1 skip=4 >>/tmp/order || exit 1
cat /tmp/order >$v/BootOrder-$g || exit 1`

// TestGuestBootOrder keeps the boot order of real firmware: it is read, a system puts itself first, ours is put back and
// stays over a cold restart, and what the system left goes once its disk is wiped.
func TestGuestBootOrder(t *testing.T) {
	dist := ramdiskParts(t)
	blank, err := os.ReadFile(ovmfVars)
	if err != nil {
		t.Skip("left out: no UEFI firmware for virtual machines: apt-get install ovmf")
	}
	vars := filepath.Join(t.TempDir(), "vars")
	if err := os.WriteFile(vars, blank, 0o600); err != nil {
		t.Fatal(err)
	}
	g := bootUEFI(t, dist, vars)
	first := g.keep("commission", agentv1.BootOrder{Write: true, Policy: "as-found"})
	if first.Problem != nil || first.Now != nil || len(first.Found.Order) < 2 {
		t.Fatalf("%+v", first)
	}
	networks := 0
	for _, e := range first.Found.Entries {
		t.Logf("%+v", e)
		if e.Kind == "network" && e.MAC == "52:54:00:12:34:56" && e.Protocol != "" {
			networks++
		}
	}
	if networks == 0 {
		t.Error("the network port has no entry")
	}
	own := inOrder(first.Found)
	g.script(systemMovesFirst)
	moved := g.keep("deploy", agentv1.BootOrder{Write: true, Policy: "as-found", Own: own})
	if moved.Problem != nil || moved.Found.Order[0] != "Boot0099" || moved.Now == nil || moved.Now.Order[0] == "Boot0099" || !slices.Contains(moved.Now.Order, "Boot0099") {
		t.Fatalf("%+v", moved)
	}
	g.off()

	g = bootUEFI(t, dist, vars)
	partition := "gpt:00112233-4455-6677-8899-aabbccddeeff"
	again := g.keep("redeploy", agentv1.BootOrder{Write: true, Policy: "as-found", Own: own})
	if again.Problem != nil || again.Now != nil || !slices.Equal(again.Found.Order, moved.Now.Order) {
		t.Errorf("after a cold restart: %+v", again)
	}
	if e := entry(again.Found, "Boot0099"); e.Name != "debian" || e.Kind != "system" || e.Partition != partition || e.File != `\EFI\debian\shimx64.efi` {
		t.Errorf("%+v", e)
	}
	gone := g.keep("release", agentv1.BootOrder{Write: true, Policy: "as-found", Own: own, Remove: []string{partition}})
	if gone.Problem != nil || len(gone.Removed) != 1 || gone.Now == nil || !slices.Equal(gone.Now.Order, first.Found.Order) || entry(*gone.Now, "Boot0099").ID != "" {
		t.Errorf("after the wipe: %+v", gone)
	}
	g.off()
}

func entry(v agentv1.BootView, id string) (e agentv1.BootEntry) {
	if i := slices.IndexFunc(v.Entries, func(e agentv1.BootEntry) bool { return e.ID == id }); i >= 0 {
		e = v.Entries[i]
	}
	return e
}

func inOrder(v agentv1.BootView) (out []agentv1.BootEntry) {
	for _, id := range v.Order {
		out = append(out, entry(v, id))
	}
	return out
}

// guest is one life of a machine.
type guest struct {
	t       *testing.T
	site    *agenttest.Site
	console <-chan string
}

// bootUEFI starts the ramdisk on UEFI firmware whose variables are kept in a file.
func bootUEFI(t *testing.T, dist, vars string) *guest {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, site: agenttest.NewSite(t)}
	g.site.Serve(t, l)
	data := g.site.Boot()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	data.SiteURLs, data.BootMAC = []string{"https://10.0.2.2:" + port}, "52:54:00:12:34:56"
	g.console = qemu(t, g.site, "-cpu", virtual.Processor, "-M", "q35", "-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-monitor", "none", "-serial", "stdio",
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+ovmfCode, "-drive", "if=pflash,format=raw,unit=1,file="+vars,
		"-drive", "if=none,id=cd,media=cdrom,readonly=on,file="+bootCD(t, dist, initrd(t, dist, *data, system()...)), "-device", "ide-cd,drive=cd",
		"-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,mac="+data.BootMAC)
	return g
}

// bootCD puts the ramdisk on a CD: firmware that is given a kernel by QEMU looks for nothing else to boot.
func bootCD(t *testing.T, dist, initrd string) string {
	t.Helper()
	m, err := uki.New(uki.Config{Stub: filepath.Join(dist, ramdisk.StubFile), Kernel: filepath.Join(dist, ramdisk.KernelFile), Initramfs: initrd, Slot: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	program, err := m.UKI(uki.Machine{BootData: make([]byte, 4), Cmdline: "console=ttyS0"})
	if err != nil {
		t.Fatal(err)
	}
	cd, err := uki.ISO(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "boot.iso")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, io.NewSectionReader(cd, 0, cd.Size())); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// system is what an installer writes: its entry, and the head of an order, both with their attributes in front.
func system() []cpio.Record {
	attrs := []byte{7, 0, 0, 0}
	hd := make([]byte, 42)
	copy(hd, []byte{4, 1, 42, 0, 1})
	binary.LittleEndian.PutUint64(hd[8:], 2048)
	binary.LittleEndian.PutUint64(hd[16:], 1<<19)
	copy(hd[24:], []byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff})
	hd[40], hd[41] = 2, 2
	var name []byte
	for _, c := range append(utf16.Encode([]rune(`\EFI\debian\shimx64.efi`)), 0) {
		name = binary.LittleEndian.AppendUint16(name, c)
	}
	file := append([]byte{4, 4, byte(4 + len(name)), 0}, name...)
	o := efi.Option{Attributes: 1, Description: utf16.Encode([]rune("debian")), Path: slices.Concat(hd, file, []byte{0x7f, 0xff, 4, 0})}
	return []cpio.Record{cpio.Directory("order", 0o755), cpio.StaticFile("order/entry", string(slices.Concat(attrs, o.Marshal())), 0o644),
		cpio.StaticFile("order/first", string(append(attrs, 0x99, 0)), 0o644)}
}

func (g *guest) keep(id string, o agentv1.BootOrder) (r agentv1.BootOrderResult) {
	g.t.Helper()
	g.site.Send(g.site.Command(id, agentv1.KindBootOrder, o))
	decode(g.t, g.site.Result(id), &r)
	return r
}

func (g *guest) script(text string) {
	g.t.Helper()
	g.site.Send(g.site.Command("script", agentv1.KindTest, agentv1.Test{Test: "script", Script: text, Seconds: 120}))
	var r agentv1.TestResult
	decode(g.t, g.site.Result("script"), &r)
	if r.Result != agentv1.TestPassed {
		g.t.Fatalf("%+v", r)
	}
}

// off ends this life, and returns when the machine is off.
func (g *guest) off() {
	g.t.Helper()
	g.site.Send(g.site.Command("off", agentv1.KindPowerOff, struct{}{}))
	for range g.console {
	}
}
