package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/agent/agenttest"
	"github.com/better-compute/bcd/images/ramdisk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// guestTime bounds the whole life of a guest; software emulation boots an operating system in about a minute.
const guestTime = 8 * time.Minute

// TestGuest runs this agent, built now, in the ramdisk of a QEMU machine: it connects, takes an inventory, tests the
// hardware, wipes two disks, sets the clock, which is wrong by decades until then, looks at what the third disk starts, and jumps
// into the operating system on it.
func TestGuest(t *testing.T) {
	dist, image := parts(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site := agenttest.NewSite(t)
	site.Serve(t, l)
	data := site.Boot()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	data.SiteURLs = []string{"https://10.0.2.2:1", "https://10.0.2.2:" + port} // QEMU's name for this host; the first is dead
	data.BootMAC = "52:54:00:12:34:56"
	data.BootURLs = []string{streams(t)}
	spare := spareDisks(t)
	console := start(t, site, dist, initrd(t, dist, *data), image, spare)
	site.Send(site.Command("inventory", agentv1.KindInventory, struct{}{}))
	var inv agentv1.Inventory
	decode(t, site.Result("inventory"), &inv)
	t.Logf("inventory: %+v", inv)
	if len(inv.Disks) != 3 || inv.System.UUID != "11111111-2222-3333-4444-555555555555" || len(inv.CPUs) != 1 || inv.Memory.Bytes == 0 || inv.Kernel == "" {
		t.Errorf("inventory %+v", inv)
	}
	target := agentv1.DiskTarget{Serial: "OS1"}
	for _, d := range inv.Disks {
		switch {
		case d.Serial == "OS1":
			target.Bytes, target.SectorSize = d.Bytes, d.SectorSize
		case d.Serial == "NV1" && d.Transport == "nvme" && d.WWN != "":
		case d.Serial == "SC1" && strings.HasPrefix(d.Name, "sd"):
		default:
			t.Errorf("disk %+v", d)
		}
	}
	if n := inv.NICs; len(n) != 1 || !n[0].Boot || !n[0].Link || n[0].Driver != "virtio_net" || len(n[0].Addrs) == 0 {
		t.Errorf("ports %+v", n)
	}
	commissioned(t, site)
	site.Send(site.Command("wipe", agentv1.KindWipe, agentv1.Wipe{Disks: []agentv1.DiskTarget{{Serial: "NV1"}, {Serial: "SC1"}}}))
	var wiped agentv1.WipeResult
	decode(t, site.Result("wipe"), &wiped)
	t.Logf("wiped: %+v", wiped)
	wipedAs(t, wiped, "nvme-format-user-data", "discard+zero")
	for _, path := range spare {
		if b, err := os.ReadFile(path); err != nil || len(bytes.Trim(b, "\x00")) > 0 {
			t.Errorf("%s still holds something: %v", path, err)
		}
	}
	sent := time.Now()
	site.Send(site.Command("clock", agentv1.KindSetClock, struct{}{}))
	var clock agentv1.SetClockResult
	decode(t, site.Result("clock"), &clock)
	if now := time.Now(); clock.Time.Before(sent.Add(-5*time.Second)) || clock.Time.After(now.Add(5*time.Second)) || !clock.RTC {
		t.Errorf("clock %+v, set between %s and %s", clock, sent, now)
	}
	looked(t, site, target)
	site.Send(site.Command("dry", agentv1.KindKexecLoad, agentv1.Kexec{Disk: target, DryRun: true}))
	var entry agentv1.KexecResult
	decode(t, site.Result("dry"), &entry)
	t.Logf("default entry: %+v", entry)
	site.Send(site.Command("kexec", agentv1.KindKexecLoad, agentv1.Kexec{Disk: target, KernelArgs: "console=ttyS0 bcd.test=1"}))
	decode(t, site.Result("kexec"), &entry)
	if !strings.HasSuffix(entry.Cmdline, "console=ttyS0 bcd.test=1") || !strings.Contains(entry.Cmdline, "root=") || len(entry.Initrds) == 0 || entry.Refused != nil {
		t.Errorf("entry %+v", entry)
	}
	for line := range console {
		if strings.Contains(line, "login:") {
			return
		}
	}
	t.Error("the operating system never asked for a login")
}

// looked prepares the disk for its first boot and tells what it starts.
func looked(t *testing.T, site *agenttest.Site, target agentv1.DiskTarget) {
	t.Helper()
	site.Send(site.Command("configure", agentv1.KindConfigure, agentv1.Configure{Disk: target, Image: "lab", Boots: true, Look: true}))
	var r agentv1.ConfigureResult
	decode(t, site.Result("configure"), &r)
	t.Logf("configured: %+v", r)
	if r.Entry == "" || !strings.HasPrefix(r.Kernel, "/boot/vmlinuz-") || len(r.Notes) > 0 {
		t.Errorf("the disk starts %+v", r)
	}
}

// spareDisks are the disks to wipe, full of 0xA5: an NVMe one, which can format itself, and a SCSI one, which cannot.
func spareDisks(t *testing.T) []string {
	t.Helper()
	out := []string{filepath.Join(t.TempDir(), "nvme"), filepath.Join(t.TempDir(), "scsi")}
	for _, path := range out {
		if err := os.WriteFile(path, bytes.Repeat([]byte{0xa5}, 64<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// wipedAs checks that each disk was erased by its method.
func wipedAs(t *testing.T, r agentv1.WipeResult, methods ...string) {
	t.Helper()
	if len(r.Disks) != len(methods) {
		t.Fatalf("%d disks", len(r.Disks))
	}
	for i, d := range r.Disks {
		if !d.Erased || d.Method != methods[i] || d.Sentinels < 200 {
			t.Errorf("%+v, not by %s", d, methods[i])
		}
	}
}

// parts finds what make ramdisk and the OS image build left, or skips.
func parts(t *testing.T) (dist, image string) {
	t.Helper()
	dist = ramdiskParts(t)
	found, _ := filepath.Glob("../../.cache/lab/images/*/image.raw")
	if len(found) == 0 {
		t.Skip("left out: no OS image was built: make lab builds one")
	}
	return dist, found[0]
}

// initrd puts boot data, ramdisk, and over it the agent as it is now, with more files, into one file.
func initrd(t *testing.T, dist string, data agentv1.BootData, more ...cpio.Record) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "agent")
	build := exec.Command("go", "build", "-o", bin, "github.com/better-compute/bcd/cmd/bcd-ramdisk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	first, err := ramdisk.BootDataCPIO(data)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.ReadFile(filepath.Join(dist, ramdisk.InitramfsFile))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var over bytes.Buffer
	w := cpio.Newc.Writer(&over)
	if err := cpio.WriteRecords(w, append([]cpio.Record{cpio.StaticFile("bbin/bcd-ramdisk", string(agent), 0o755)}, more...)); err != nil {
		t.Fatal(err)
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(first, base)
	all = append(append(all, make([]byte, -len(all)&3)...), over.Bytes()...)
	path := filepath.Join(dir, "initrd")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start boots the guest and gives the lines of its console. It ends with the test.
func start(t *testing.T, site *agenttest.Site, dist, initrd, image string, spare []string) <-chan string {
	t.Helper()
	return qemu(t, site,
		"-cpu", virtual.Processor, "-M", "q35", "-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-uuid", "11111111-2222-3333-4444-555555555555",
		"-rtc", "base=2001-02-03T04:05:06", // a wrong clock
		"-monitor", "none", "-serial", "stdio", "-kernel", filepath.Join(dist, ramdisk.KernelFile), "-initrd", initrd, "-append", "console=ttyS0",
		"-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile=",
		"-drive", "if=none,id=os,format=raw,snapshot=on,file="+image, "-device", "virtio-blk-pci,drive=os,serial=OS1",
		"-drive", "if=none,id=nv,format=raw,discard=unmap,file="+spare[0], "-device", "nvme,drive=nv,serial=NV1",
		"-device", "virtio-scsi-pci", "-drive", "if=none,id=sc,format=raw,discard=unmap,file="+spare[1], "-device", "scsi-hd,drive=sc,serial=SC1",
	)
}

// qemu runs a machine whose agent calls the site, and gives the lines of its console, until it is off. It ends with the test.
func qemu(t *testing.T, site *agenttest.Site, args ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guestTime)
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	lines, done := make(chan string, 8192), make(chan struct{})
	site.MachineEnds(done)
	begin := time.Now()
	go func() {
		defer close(done)
		defer close(lines)
		r := bufio.NewReaderSize(out, 64<<10)
		var line []byte
		for {
			c, err := r.ReadByte()
			if err != nil {
				_ = cmd.Wait() // ended by the test, or by its time
				return
			}
			if line = append(line, c); c == '\n' || bytes.HasSuffix(line, []byte("login:")) {
				if os.Getenv("BCD_TEST_CONSOLE") != "" {
					fmt.Fprintf(os.Stderr, "%6.1f %s\n", time.Since(begin).Seconds(), bytes.TrimSpace(line))
				}
				select {
				case lines <- string(line):
				default:
				}
				line = nil
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return lines
}

func decode(t *testing.T, r agentv1.AttemptState, into any) {
	t.Helper()
	if r.State != "done" {
		t.Fatalf("%s failed: %+v", r.Key, r.Error)
	}
	if err := json.Unmarshal(r.Result, into); err != nil {
		t.Fatal(err)
	}
}
