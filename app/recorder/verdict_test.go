package recorder_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
)

const (
	portA = "00:00:5e:00:53:01"
	portB = "00:00:5e:00:53:02"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var names = recorder.Names{Loaders: []string{"undionly.kpxe", "snponly.efi"}, Kernel: "vmlinuz", Initramfs: "initramfs.zst", Whole: "boot.efi", ToDisk: "disk.efi"}

// tape writes down a boot as the appliance would.
type tape struct {
	out []app.Record
}

func (t *tape) rec(at float64, kind, message string, data map[string]any) *tape {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	t.out = append(t.out, app.Record{ID: int64(len(t.out) + 1), Time: epoch.Add(time.Duration(at * float64(time.Second))), Kind: kind, MachineID: "m-1", Message: message, Data: b})
	return t
}

type m = map[string]any

func begin(want string) *tape {
	t := &tape{}
	kind := map[string]string{"ramdisk": "boot.permit", "iso": "boot.iso", "media": "boot.media", "disk": "boot.revoke"}[want]
	return t.rec(-2, kind, "", nil).power(0, "on")
}

func (t *tape) power(at float64, action string) *tape {
	return t.rec(at, "bmc.power", "asked", m{"action": action, "phase": "asked", "was": "off"}).rec(at+1, "bmc.power", "done", m{"action": action, "phase": "done"})
}

// dhcp is an exchange; what is DISCOVER or REQUEST.
func (t *tape) dhcp(at float64, kind, what, stage string, more m) *tape {
	d := m{"mac": portA, "address": "192.0.2.101", "request": what, "stage": stage, "arch": "x64", "interface": "eno2", "subnet": "net-1"}
	for k, v := range more {
		d[k] = v
	}
	return t.rec(at, kind, "dhcp", d)
}

func (t *tape) address(at float64, stage string, more m) *tape {
	file := m{"file": map[string]string{"firmware": "snponly.efi", "ipxe": "http://192.0.2.1:8080/boot/script", "http": "http://192.0.2.1:8080/ipxe/snponly.efi"}[stage]}
	for k, v := range more {
		file[k] = v
	}
	return t.dhcp(at, "dhcp.offer", "DISCOVER", stage, file).dhcp(at+1, "dhcp.ack", "REQUEST", stage, file)
}

func (t *tape) tftp(at float64, more m) *tape {
	d := m{"mac": portA, "name": "snponly.efi", "bytes": 281600, "millis": 400}
	for k, v := range more {
		d[k] = v
	}
	return t.rec(at, "tftp.get", "", d)
}

func (t *tape) http(at float64, name string, more m) *tape {
	d := m{"mac": portA, "method": "GET", "name": name, "status": 200, "bytes": 9000000, "size": 9000000, "millis": 800}
	for k, v := range more {
		d[k] = v
	}
	return t.rec(at, "http.get", "", d)
}

func (t *tape) script(at float64, kind, err string) *tape {
	return t.rec(at, "ipxe.script", "", m{"macs": []string{portA}, "kind": kind, "error": err})
}

func (t *tape) console(at float64, lines ...string) *tape {
	for _, l := range lines {
		t.rec(at, recorder.KindConsole, l, nil)
	}
	return t
}

// toScript is a boot that went well up to its script, 36 s after power-on.
func toScript() *tape {
	return begin("ramdisk").address(31, "firmware", nil).tftp(33, nil).address(34, "ipxe", nil).script(36, "ramdisk", "")
}

// toISO is a boot of a CD image that got its script, 36 s after power-on.
func toISO() *tape {
	return begin("iso").address(31, "firmware", nil).tftp(33, nil).address(34, "ipxe", nil).script(36, "iso", "")
}

func (t *tape) iso(at float64, bytes int64) *tape {
	return t.rec(at, "iso.read", "", m{"bytes": bytes, "size": 600 << 20})
}

// toKernel is one that loaded all, 41 s after power-on.
func toKernel() *tape {
	return toScript().http(40, "/ramdisk/vmlinuz", nil).http(40.5, "/boot/KEY/bootdata.cpio", nil).http(41, "/ramdisk/initramfs.zst", nil)
}

// The named situations of a boot, each with what the person who waits for it is told.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name  string
		tape  *tape
		now   float64
		code  string
		level string
		says  string // part of the sentence and the way out
	}{
		{"firmware is starting", begin("ramdisk"), 12, recorder.CodeStarting, "wait", "Powered on 12 s ago; its firmware is starting."},
		{"no DISCOVER yet", begin("ramdisk"), 40, recorder.CodeNoDiscover, "wait", "Powered on 40 s ago, no DISCOVER. (check the cable"},
		{"no DISCOVER at all", begin("ramdisk"), 300, recorder.CodeNoDiscover, "warn", "Powered on 300 s ago, no DISCOVER. (check the cable and its link light, that the switch port forwards at once (STP edge port), and that network boot is first in the boot order"},
		{"no DISCOVER, and it took 31 s last time", begin("ramdisk").address(31, "firmware", nil).power(100, "off").power(200, "on"), 290, recorder.CodeNoDiscover, "warn", "Powered on 90 s ago, no DISCOVER; last time it took 31 s."},
		{"power-on refused", begin("ramdisk").rec(3, "bmc.power", "the BMC answered 503", m{"action": "on", "phase": "failed"}), 9, recorder.CodePowerFailed, "error", "not on: the BMC answered 503"},
		{"asked where nobody answers", begin("ramdisk").dhcp(31, "dhcp.heard", "DISCOVER", "firmware", m{"reason": "nothing is to be booted on this machine"}), 41, recorder.CodeListenOnly, "error", "It asked 10 s ago on the subnet net-1, which is listened to only."},
		{"pool exhausted", begin("ramdisk").rec(31, "dhcp.exhausted", "", m{"mac": portA, "subnet": "net-1"}), 41, recorder.CodePoolExhausted, "error", "no address left"},
		{"OFFER not taken", begin("ramdisk").dhcp(31, "dhcp.offer", "DISCOVER", "firmware", m{"file": "snponly.efi"}), 45, recorder.CodeNotTaken, "warn", "It was offered 192.0.2.101 14 s ago and has not taken it."},
		{"OFFER not taken yet", begin("ramdisk").dhcp(31, "dhcp.offer", "DISCOVER", "firmware", m{"file": "snponly.efi"}), 33, recorder.CodeLoading, "wait", "It was offered 192.0.2.101 2 s ago."},
		{"OFFER not taken, the rival's was", begin("ramdisk").dhcp(31, "dhcp.offer", "DISCOVER", "firmware", m{"file": "snponly.efi"}).dhcp(32, "dhcp.elsewhere", "REQUEST", "firmware", m{"server": "192.0.2.5"}), 45, recorder.CodeNotTaken, "warn",
			"it took the offer of 192.0.2.5. (turn the DHCP server 192.0.2.5 off"},
		{"proxy offer ignored", begin("ramdisk").dhcp(31, "dhcp.proxy", "DISCOVER", "firmware", m{"file": "snponly.efi", "address": ""}), 60, recorder.CodeNotTaken, "warn", "ignores such proxy offers"},
		{"wrong architecture", begin("ramdisk").address(31, "firmware", m{"file": "", "arch": "arm64", "reason": "this build has no loader for architecture 0x000b arm64"}), 40, recorder.CodeWrongArch, "error", "asked 9 s ago as architecture arm64"},
		{"wrong architecture beside a foreign server", begin("ramdisk").dhcp(31, "dhcp.heard", "DISCOVER", "firmware", m{"arch": "arm64", "reason": "this build has no loader for architecture 0x000b arm64"}), 40, recorder.CodeWrongArch, "error", "arm64"},
		{"address and no file asked for", begin("ramdisk").address(31, "firmware", nil), 60, recorder.CodeNoLoader, "warn", `It took the address 192.0.2.101, was told 28 s ago to load "snponly.efi", and has asked for no file. (check that UDP port 69`},
		{"firmware refuses plain HTTP", begin("ramdisk").address(31, "http", nil), 60, recorder.CodeHTTPRefused, "warn", "was told 28 s ago to boot from http://192.0.2.1:8080/ipxe/snponly.efi, and asked for nothing there. (firmware that refuses plain HTTP (Dell: UEFI0417)"},
		{"firmware says UEFI0417", begin("ramdisk").address(31, "http", nil).console(34, "UEFI0417: Unable to boot from the HTTP device because the URI is not https"), 40, recorder.CodeHTTPRefused, "error", "refused 6 s ago to boot over plain HTTP"},
		{"TFTP stall", begin("ramdisk").address(31, "firmware", nil).tftp(40, m{"bytes": 1468, "millis": 7000, "error": "sending block 2: receiving ack: i/o timeout", "blockSize": 1468, "retries": 6}), 45, recorder.CodeTFTPStall, "error",
			`Loading "snponly.efi" by TFTP stalled 5 s ago after 1.4 KiB in 7 s, blocks of 1468 bytes, 6 datagrams sent again: sending block 2`},
		{"a file that is not here", begin("ramdisk").address(31, "firmware", nil).tftp(33, m{"name": "pxelinux.0", "bytes": 0, "error": "file not found"}), 35, recorder.CodeNotHere, "error", `"pxelinux.0", which is not here`},
		{"loader and no script", begin("ramdisk").address(31, "firmware", nil).tftp(33, nil), 70, recorder.CodeNoScript, "warn", `The loader "snponly.efi" was loaded 37 s ago, and it has not asked for its script. (iPXE has not even asked for an address`},
		{"loader, address and no script", begin("ramdisk").address(31, "firmware", nil).tftp(33, nil).address(34, "ipxe", nil), 70, recorder.CodeNoScript, "warn", "has asked for an address and not for the script"},
		{"loader again and again", begin("ramdisk").address(31, "firmware", nil).tftp(33, nil).address(80, "firmware", nil).tftp(82, nil), 83, recorder.CodeLoading, "wait", "for the 2. time; its script is next"},
		{"an image, no DISCOVER yet", begin("iso"), 40, recorder.CodeNoDiscover, "wait", "Powered on 40 s ago, no DISCOVER."},
		{"an image is next", toISO(), 40, recorder.CodeLoading, "wait", "Its script was handed out 4 s ago; the image is next."},
		{"script and no image", toISO(), 80, recorder.CodeNoISO, "warn", "handed out 44 s ago, and the image was not read since. (look at its screen"},
		{"sent to its disk in place of an image", begin("iso").address(31, "firmware", nil).tftp(33, nil).script(36, "disk", ""), 40, recorder.CodeToDisk, "error", "no permission to start the image was there"},
		{"an image is read", toISO().iso(40, 2048).iso(42, 3<<20), 50, recorder.CodeISO, "ok", "The image was first read 10 s ago; 3.0 MiB of it left since."},
		{"restarted by its installer, from the network", toISO().iso(40, 3<<20).address(400, "firmware", nil), 405, recorder.CodeNotDisk, "warn", "though it should boot its disk"},
		{"an image in the virtual drive, not read", begin("media"), 300, recorder.CodeNoISO, "warn", "Powered on 300 s ago, and its BMC has not read the image. (check that the BMC reaches this host"},
		{"an image in the virtual drive, not yet", begin("media"), 30, recorder.CodeStarting, "wait", "its BMC has not read the image yet"},
		{"an image in the virtual drive, read before power-on", (&tape{}).rec(-5, "boot.media", "", nil).iso(-3, 4<<20).power(0, "on"), 30, recorder.CodeISO, "ok", "4.0 MiB"},
		{"script says wait", begin("ramdisk").address(31, "firmware", nil).tftp(33, nil).script(36, "", "store-busy"), 40, recorder.CodeScriptWaits, "error", "told to wait: store-busy"},
		{"script sends to the disk", begin("ramdisk").address(31, "firmware", nil).tftp(33, nil).script(36, "disk", ""), 40, recorder.CodeToDisk, "error", "sent to its disk"},
		{"script and no kernel yet", toScript(), 45, recorder.CodeLoading, "wait", "handed out 9 s ago; the kernel is next"},
		{"script and no kernel", toScript(), 140, recorder.CodeNoKernel, "warn", "Its script was handed out 104 s ago, and no kernel was loaded whole since."},
		{"kernel broken off", toScript().http(45, "/ramdisk/vmlinuz", m{"bytes": 4 << 20, "size": 9 << 20, "millis": 9000}), 50, recorder.CodeBrokenOff, "error", "ended 5 s ago after 4.0 MiB of 9.0 MiB in 9 s: it was broken off"},
		{"kernel gone", toScript().http(45, "/ramdisk/vmlinuz", m{"status": 404, "bytes": 10}), 50, recorder.CodeNotHere, "error", "which is not here"},
		{"kernel and no initramfs", toScript().http(40, "/ramdisk/vmlinuz", nil).http(44, "/ramdisk/initramfs.zst", m{"bytes": 1 << 20, "size": 20 << 20}), 50, recorder.CodeBrokenOff, "error", "initramfs.zst"},
		{"kernel and no ramdisk yet", toScript().http(40, "/ramdisk/vmlinuz", nil), 50, recorder.CodeLoading, "wait", "The kernel was loaded 10 s ago; the ramdisk is next."},
		{"kernel and no ramdisk", toScript().http(40, "/ramdisk/vmlinuz", nil), 140, recorder.CodeNoKernel, "warn", "The kernel was loaded 100 s ago, and the ramdisk was not loaded whole since."},
		{"kernel and no agent yet", toKernel(), 60, recorder.CodeLoading, "wait", "loaded 19 s ago; the ramdisk is starting"},
		{"kernel and no agent", toKernel().console(45, "Linux version 6.1", "e1000e 0000:01:00.0: firmware missing"), 200, recorder.CodeNoAgent, "warn", "Kernel and ramdisk were loaded 159 s ago, and the agent has not called; its console last said, 155 s ago: e1000e 0000:01:00.0: firmware missing."},
		{"kernel panic", toKernel().console(45, "Kernel panic - not syncing: VFS"), 50, recorder.CodeNoAgent, "error", "the kernel stopped: Kernel panic - not syncing: VFS"},
		{"kernel and then all over again", toKernel().address(100, "firmware", nil), 200, recorder.CodeNoAgent, "warn", "the machine started over 99 s ago"},
		{"the ramdisk asks on another port", toKernel().dhcp(50, "dhcp.offer", "DISCOVER", "os", m{"mac": portB, "address": "192.0.2.102"}), 200, recorder.CodeOtherPort, "warn", "loaded 159 s ago from port " + portA + "; the ramdisk now asks for an address on port " + portB},
		{"agent up on another port", toKernel().address(50, "os", m{"mac": portB, "address": "192.0.2.102"}).rec(55, "agent.up", "", m{"address": "192.0.2.102"}), 60, recorder.CodeOtherPort, "warn", "is up 55 s after power-on, at 192.0.2.102 on port " + portB},
		{"agent up", toKernel().address(50, "os", nil).rec(55, "agent.up", "", m{"address": "192.0.2.101"}), 60, recorder.CodeWell, "ok", "All well: the ramdisk's agent called 55 s after the machine was started."},
		{"agent up long since", toKernel().rec(55, "agent.up", "", nil), 700, "", "", ""},
		{"UEFI HTTP Boot asks for the size", begin("ramdisk").address(31, "http", nil).http(33, "/boot/KEY/boot.efi", m{"method": "HEAD", "bytes": 0}), 60, recorder.CodeLoading, "wait", "Its firmware asked 27 s ago for its boot program over HTTP, and is loading it."},
		{"UEFI HTTP Boot on a slow wire", begin("ramdisk").address(31, "http", nil).rec(33, "http.begin", "", m{"mac": portA, "method": "GET", "name": "/boot/KEY/boot.efi"}), 100, recorder.CodeLoading, "wait", "and is loading it"},
		{"UEFI HTTP Boot that never ends", begin("ramdisk").address(31, "http", nil).http(33, "/boot/KEY/boot.efi", m{"method": "HEAD", "bytes": 0}), 200, recorder.CodeBrokenOff, "warn", "has not loaded it whole. (look at its console: firmware with little memory"},
		{"UEFI HTTP Boot broken off", begin("ramdisk").address(31, "http", nil).http(35, "/boot/KEY/boot.efi", m{"bytes": 1 << 20, "size": 27 << 20}), 40, recorder.CodeBrokenOff, "error", "ended 5 s ago after 1.0 MiB of 27.0 MiB"},
		{"UEFI HTTP Boot tries again", begin("ramdisk").address(31, "http", nil).http(35, "/boot/KEY/boot.efi", m{"bytes": 1 << 20, "size": 27 << 20}).http(38, "/boot/KEY/boot.efi", m{"method": "HEAD", "bytes": 0}), 40, recorder.CodeLoading, "wait", "asked 2 s ago"},
		{"UEFI HTTP Boot without permission", begin("ramdisk").address(31, "http", nil).http(33, "/boot/disk.efi", nil), 40, recorder.CodeToDisk, "error", "was sent to its disk"},
		{"UEFI HTTP Boot when the disk should boot", begin("disk").address(31, "http", nil).http(33, "/boot/disk.efi", nil), 40, recorder.CodeNotDisk, "warn", "it was sent on to its disk 7 s ago"},
		{"UKI and no agent", begin("ramdisk").address(31, "http", nil).http(35, "/boot/KEY/boot.efi", m{"bytes": 30 << 20, "size": 30 << 20}).console(36, "Access Denied"), 200, recorder.CodeNoAgent, "warn", "Its boot program was loaded 165 s ago, and the agent has not called; its console last said, 164 s ago: Access Denied. (look at the console: firmware with Secure Boot on"},
		{"the UKI is loader, kernel and ramdisk", begin("ramdisk").address(31, "http", nil).http(35, "/boot/KEY/boot.efi", m{"bytes": 30 << 20, "size": 30 << 20}), 60, recorder.CodeLoading, "wait", "loaded 25 s ago"},
		{"a port that nobody has confirmed", begin("ramdisk").address(31, "firmware", nil).rec(32, "boot.question", "port 00:00:5e:00:53:01 netbooted as one of node-1, and nobody has confirmed it", m{"wayOut": "confirm the port"}), 40, recorder.CodeQuestion, "error", "Powered on 40 s ago; port 00:00:5e:00:53:01 netbooted as one of node-1, and nobody has confirmed it. (confirm the port)"},
		{"token traded twice", toKernel().rec(50, "agent.alarm", "the boot token of this power-on was traded a second time", nil), 55, recorder.CodeTokenReused, "error", "another machine called in its place"},
		{"netboot when it should have booted its disk", begin("disk").address(31, "firmware", m{"file": "snponly.efi"}).script(36, "disk", ""), 50, recorder.CodeNotDisk, "warn", "Powered on 50 s ago, it asked the network 19 s ago though it should boot its disk; it was sent on to its disk 14 s ago. (put its disk first"},
		{"netboot by itself when it should boot its disk", (&tape{}).rec(0, "boot.revoke", "", nil).address(31, "firmware", nil), 50, recorder.CodeNotDisk, "warn", "Started by itself, heard 19 s ago"},
		{"booting its disk", begin("disk"), 60, recorder.CodeLoading, "wait", "Powered on 60 s ago; the installed system has not been heard yet."},
		{"no sign of its system", begin("disk").console(20, "grub rescue>"), 1300, recorder.CodeNoSystem, "warn", "its console last said, 1280 s ago: grub rescue>"},
		{"system alive", begin("disk").rec(50, "os.alive", "", nil), 60, recorder.CodeSystemAlive, "wait", "asked for an address 10 s ago"},
		{"system called", begin("disk").rec(50, "os.alive", "", nil).rec(70, "os.home", "", nil).rec(78, "os.home", "", nil), 80, recorder.CodeWell, "ok", "All well: the installed system called 70 s after"},
		{"powered off", begin("ramdisk").power(20, "off"), 30, "", "", ""},
		{"on when it was on already", (&tape{}).rec(0, "bmc.power", "", m{"action": "on", "phase": "asked", "was": "on"}).rec(1, "bmc.power", "", m{"action": "on", "phase": "done"}), 30, "", "", ""},
		{"nothing known", &tape{}, 30, "", "", ""},
		{"an hour ago and more", begin("ramdisk"), 8000, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := recorder.Facts{Names: names}
			for _, r := range c.tape.out {
				f.Add(r)
			}
			for _, r := range c.tape.out { // what was added already changes nothing
				f.Add(r)
			}
			v := recorder.Judge(f, epoch.Add(time.Duration(c.now*float64(time.Second))))
			switch {
			case v == nil && c.code != "":
				t.Fatalf("no verdict, want %s", c.code)
			case v == nil:
				return
			case v.Code != c.code || v.Level != c.level || !strings.Contains(v.Text(), c.says):
				t.Errorf("%s %s: %s\nwant %s %s: %s", v.Code, v.Level, v.Text(), c.code, c.level, c.says)
			}
			if v.Level != "ok" && v.Level != "wait" && v.WayOut == "" {
				t.Error("there is no way out")
			}
		})
	}
}

func TestMarksTellHowFarABootCame(t *testing.T) {
	f := recorder.Facts{Names: names}
	for _, r := range toKernel().rec(55, "agent.up", "", nil).out {
		f.Add(r)
	}
	v := recorder.Judge(f, epoch.Add(time.Minute))
	if v == nil {
		t.Fatal("no verdict")
	}
	var got []string
	for _, k := range v.Marks {
		got = append(got, fmt.Sprintf("%s %g", k.Name, k.Seconds))
	}
	want := "power-on 0, DISCOVER 31, address 32, loader 33, script 36, kernel 40, ramdisk 41, agent 55"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("marks %s\nwant  %s", s, want)
	}
}

// What the wire fills in breaks nothing.
func FuzzFacts(f *testing.F) {
	for _, r := range toKernel().out {
		f.Add(r.Kind, r.Message, []byte(r.Data))
	}
	f.Fuzz(func(t *testing.T, kind, message string, data []byte) {
		facts := recorder.Facts{Names: names}
		for _, r := range begin("ramdisk").out {
			facts.Add(r)
		}
		for i := range int64(40) {
			facts.Add(app.Record{ID: 100 + i, Time: epoch.Add(time.Duration(i) * time.Minute), Kind: kind, Message: message, Data: data})
		}
		if v := recorder.Judge(facts, epoch.Add(time.Hour)); v != nil && (v.Code == "" || v.Sentence == "") {
			t.Errorf("verdict %+v", v)
		}
		if len(facts.Ports) > 16 || len(facts.Tail) > 12 {
			t.Errorf("%d ports, %d lines", len(facts.Ports), len(facts.Tail))
		}
	})
}
