package early

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const aliasFile = `# Aliases extracted from modules themselves.
alias pci:v00001AF4d00001000sv*sd*bc*sc*i* virtio_pci
alias pci:v*d*sv*sd*bc01sc06i01* ahci
alias virtio:d00000001v* virtio_net
alias acpi*:LNXPWRBN:* button
alias dmi:*bvn[A-Z]*:svnVendor*pnModel/A* quirk
alias fs-ext4 ext4
alias cpu:type:x86,ven*fam*mod*:feature:*0099* aesni_intel
alias crypto-crc32c crc32c_generic
alias crypto-crc32c crc32c_intel
alias input:b*v*p*e*-e*k* evdev
malformed
`

func table(t *testing.T) *aliases {
	t.Helper()
	a, err := readAliases(strings.NewReader(aliasFile))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLookup(t *testing.T) {
	for alias, want := range map[string][]string{
		"pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00": {"virtio_pci"},
		"pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01": {"ahci"},
		"virtio:d00000001v00001AF4":                             {"virtio_net"},
		"fs-ext4":                                               {"ext4"},
		"crypto_crc32c":                                         {"crc32c_generic", "crc32c_intel"},
		"acpi:LNXPWRBN:":                                        {"button"},
		"dmi:bvnAcme:svnVendor:pnModel/A1":                      {"quirk"},
		"usb:v1D6Bp0002":                                        nil,
		"":                                                      nil,
	} {
		if got := table(t).lookup(alias); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", alias, got, want)
		}
	}
}

func FuzzLookup(f *testing.F) {
	f.Add(aliasFile, "fs-ext4")
	f.Add("alias a[ b\nalias *:x y", "x:x")
	f.Fuzz(func(t *testing.T, file, alias string) {
		if a, err := readAliases(strings.NewReader(file)); err == nil {
			a.lookup(alias)
		}
	})
}

// tree makes files below a fresh directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestColdplugRounds: loading the bus driver makes its devices appear, whose driver the next round loads. A driver
// without its device is no failure, one that breaks is named, and nothing is asked for twice.
func TestColdplugRounds(t *testing.T) {
	sys := tree(t, map[string]string{
		"devices/pci0000:00/0000:00:03.0/modalias": "pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00\n",
		"devices/pci0000:00/0000:00:04.0/modalias": "pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i01\n",
		"devices/pci0000:00/0000:00:1f.2/modalias": "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01\n",
		"devices/LNXSYSTM:00/modalias":             "acpi:LNXPWRBN:\n",
		"devices/system/cpu/cpu0/modalias":         "cpu:type:x86,ven0000fam0006mod003A:feature:,0000,0099\n",
	})
	calls := map[string]int{}
	m := newModules(table(t), nil, slog.New(slog.DiscardHandler))
	m.probe = func(name string) error {
		m.mu.Lock()
		calls[name]++
		m.mu.Unlock()
		switch name {
		case "virtio_pci":
			p := filepath.Join(sys, "devices/pci0000:00/0000:00:03.0/virtio0")
			return errors.Join(os.Mkdir(p, 0o755), os.WriteFile(filepath.Join(p, "modalias"), []byte("virtio:d00000001v00001AF4"), 0o644))
		case "ahci":
			return fmt.Errorf("probe: %w", unix.ENODEV)
		case "button":
			return fmt.Errorf("probe: %w", unix.ENOEXEC)
		}
		return nil
	}
	m.coldplug(sys)
	if d := cmp.Diff(map[string]int{"virtio_pci": 1, "virtio_net": 1, "ahci": 1, "button": 1}, calls); d != "" {
		t.Errorf("loads\n%s", d)
	}
	if d := cmp.Diff([]string{"virtio_pci", "virtio_net"}, m.loaded); d != "" {
		t.Errorf("loaded\n%s", d)
	}
	if len(m.failed) != 1 || m.failed["button"] == nil {
		t.Errorf("failed: %v, want button alone", m.failed)
	}
}

// TestModprobeRequest: what the kernel's request_module() runs.
func TestModprobeRequest(t *testing.T) {
	var got []string
	m := newModules(table(t), func(n string) error {
		got = append(got, n)
		if n == "absent" || n == "crc32c_intel" {
			return unix.ENODEV
		}
		return nil
	}, slog.New(slog.DiscardHandler))
	for _, arg := range []string{"fs-ext4", "crypto-crc32c", "dm-crypt"} {
		if err := m.byRequest([]string{"-q", "--", arg}); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if d := cmp.Diff([]string{"ext4", "crc32c_generic", "crc32c_intel", "dm_crypt"}, got); d != "" {
		t.Error(d)
	}
	if err := m.byRequest([]string{"absent"}); err == nil {
		t.Error("no error for a module that is not there")
	}
}

// TestDevicesSettle: the agent may start when the first look is done; the report says settled a moment after the last
// device, and drivers without alias follow the ones they belong to.
func TestDevicesSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var r Report
		now := func() Report { mu.Lock(); defer mu.Unlock(); return r }
		m := newModules(&aliases{exact: map[string][]string{"acpi:IPI0001:": {"ipmi_si"}, "late:1": {"slow"}}}, func(n string) error {
			if n == "slow" {
				time.Sleep(5 * time.Second)
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		events := make(chan uevent)
		inputs := make(chan string, 1)
		d := &devices{mods: m, sys: tree(t, map[string]string{"devices/x/modalias": "acpi:IPI0001:"}), events: events,
			report: func(f func(*Report)) { mu.Lock(); defer mu.Unlock(); f(&r) }, ready: make(chan struct{}), input: func(n string) { inputs <- n }}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go d.run(ctx)
		<-d.ready
		synctest.Wait()
		if d := cmp.Diff([]string{"ipmi_si", "ipmi_devintf"}, now().Loaded); d != "" || now().Settled {
			t.Errorf("settled %v at once\n%s", now().Settled, d)
		}
		events <- uevent{Action: "add", Modalias: "late:1"}
		events <- uevent{Action: "add", Subsystem: "input", DevName: "input/event3"}
		events <- uevent{Action: "remove", Modalias: "late:2"}
		if n := <-inputs; n != "input/event3" {
			t.Errorf("input device %q", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if now().Settled {
			t.Error("settled while a driver was loading")
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if r := now(); !r.Settled || !slices.Contains(r.Loaded, "slow") {
			t.Errorf("two seconds after the last driver: %+v", r)
		}
	})
}

// TestSlowController: a driver that takes a minute does not keep the agent from starting.
func TestSlowController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModules(&aliases{exact: map[string][]string{"x:1": {"raid"}}}, func(string) error { time.Sleep(50 * time.Second); return nil }, slog.New(slog.DiscardHandler))
		d := &devices{mods: m, sys: tree(t, map[string]string{"devices/x/modalias": "x:1"}), report: func(f func(*Report)) { f(&Report{}) }, ready: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		go d.run(ctx)
		start := time.Now()
		<-d.ready
		if took := time.Since(start); took != agentAtMost {
			t.Errorf("the agent waited %v", took)
		}
		stop()
		time.Sleep(time.Minute)
	})
}

func TestParseWant(t *testing.T) {
	for line, want := range map[string]Want{
		"4,612,2204512,-;bnx2 0000:01:00.0: firmware: failed to load bnx2/bnx2-mips-09-6.2.1b.fw (-2)\n SUBSYSTEM=pci\n": {Driver: "bnx2", File: "bnx2/bnx2-mips-09-6.2.1b.fw"},
		"4,613,2204512,-;ice 0000:18:00.0: Direct firmware load for intel/ice/ddp/ice.pkg failed with error -2":          {Driver: "ice", File: "intel/ice/ddp/ice.pkg"},
		"4,614,1,-;firmware: failed to load regulatory.db (-2)":                                                          {File: "regulatory.db"},
	} {
		if got, ok := parseWant(kmsgText(line)); !ok || got != want {
			t.Errorf("%q: %+v %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "6,1,1,-;Linux version", "6,1,1,-;secureboot: Direct firmware load for", "no separator"} {
		if w, ok := parseWant(kmsgText(line)); ok {
			t.Errorf("%q gave %+v", line, w)
		}
	}
	if s := (Want{Driver: "bnx2", File: "x.fw"}).String(); s != "driver bnx2 wants firmware x.fw" {
		t.Error(s)
	}
}

func TestParseUevent(t *testing.T) {
	got := parseUevent([]byte("add@/devices/pci0000:00/0000:00:03.0\x00ACTION=add\x00DEVPATH=/devices/x=y\x00SUBSYSTEM=pci\x00MODALIAS=pci:v1=2\x00DEVNAME=input/event1\x00"))
	if want := (uevent{Action: "add", Subsystem: "pci", Modalias: "pci:v1=2", DevName: "input/event1"}); got != want {
		t.Errorf("%+v", got)
	}
	if got := parseUevent(nil); got != (uevent{}) {
		t.Errorf("%+v", got)
	}
}

func inputEvent(typ, code uint16, value int32) []byte {
	b := make([]byte, inputEventSize)
	binary.NativeEndian.PutUint16(b[16:], typ)
	binary.NativeEndian.PutUint16(b[18:], code)
	binary.NativeEndian.PutUint32(b[20:], uint32(value))
	return b
}

// TestPowerKey: only the press of that key on a device that has it counts.
func TestPowerKey(t *testing.T) {
	stream := slices.Concat(inputEvent(1, 30, 1), inputEvent(1, keyPower, 1), inputEvent(0, 0, 0), inputEvent(1, keyPower, 0))
	sys := tree(t, map[string]string{
		"class/input/event0/device/capabilities/key": "10000000000000 0\n",
		"class/input/event1/device/capabilities/key": "70000 0 0 0 0\n",
		"class/input/event2/device/capabilities/key": "garbage 0\n",
	})
	dev := tree(t, map[string]string{"input/event0": string(stream), "input/event1": string(stream), "input/event2": string(stream)})
	for _, n := range inputDevices(dev) {
		pressed := 0
		watchPowerKey(t.Context(), sys, dev, n, func() { pressed++ })
		if want := map[bool]int{true: 1}[n == "input/event0"]; pressed != want {
			t.Errorf("%s: %d presses, want %d", n, pressed, want)
		}
	}
}

// TestKeep: a program that dies is started again and told to stop at the end; an orphan's exit takes nobody's place.
func TestKeep(t *testing.T) {
	c := newChildren()
	stop := make(chan struct{})
	reaped := make(chan struct{})
	go func() { c.reap(stop); close(reaped) }()
	attr := func() (*os.ProcAttr, func(), error) { return &os.ProcAttr{}, func() {}, nil }
	if !c.once(t.Context(), program{name: "dies", exe: "/bin/sh", argv: []string{"sh", "-c", "exit 3"}, attr: attr}, 0, slog.New(slog.DiscardHandler)) {
		t.Error("a program that ended is not to run again")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		c.keep(ctx, program{name: "stays", exe: "/bin/sleep", argv: []string{"sleep", "600"}, attr: attr}, time.Minute, slog.New(slog.DiscardHandler))
		close(ended)
	}()
	cancel()
	<-ended
	close(stop)
	<-reaped
	if s := endOf(syscall.WaitStatus(9)); s != "killed by killed" {
		t.Error(s)
	}
}

// TestEndsOnlyTheRamdisk: on any other machine the functions that end processes and boots refuse.
func TestEndsOnlyTheRamdisk(t *testing.T) {
	if err := inRamdisk(); err == nil {
		t.Fatal("this machine passes for the ramdisk; not going further")
	}
	for name, err := range map[string]error{"killAll": killAll(), "End": End(PowerOff), "Run": Run(t.Context(), Config{})} {
		if err == nil {
			t.Errorf("%s did not refuse", name)
		}
	}
}

func TestReport(t *testing.T) {
	p := filepath.Join(t.TempDir(), "run", "early.json")
	if r, err := ReadReport(p); err != nil || r.Settled {
		t.Errorf("missing: %+v %v", r, err)
	}
	want := Report{Settled: true, Loaded: []string{"nvme"}, Wants: []Want{{"ice", "ice.pkg"}}}
	if err := writeReport(p, want); err != nil {
		t.Fatal(err)
	}
	got, err := WaitSettled(t.Context(), p)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

func TestConsoles(t *testing.T) {
	sys := tree(t, map[string]string{"class/tty/console/active": "tty0 ttyS0 ttyS9\n"})
	dev := tree(t, map[string]string{"tty0": "", "ttyS0": ""})
	fmt.Fprint(openConsoles(sys, dev), "hello")
	for _, n := range []string{"tty0", "ttyS0"} {
		if b, err := os.ReadFile(filepath.Join(dev, n)); string(b) != "hello" {
			t.Errorf("%s: %q %v", n, b, err)
		}
	}
}

// FuzzKernelText: what the kernel prints may come from a device, as its name or serial number.
func FuzzKernelText(f *testing.F) {
	f.Add("4,612,2204512,-;bnx2 0000:01:00.0: firmware: failed to load bnx2/x.fw (-2)\n SUBSYSTEM=pci\n")
	f.Add("add@/devices/x\x00ACTION=add\x00MODALIAS=pci:v1\x00")
	f.Add("10000000000000 0\n")
	f.Fuzz(func(t *testing.T, s string) {
		if w, ok := parseWant(kmsgText(s)); ok && (w.File == "" || strings.ContainsAny(w.String(), "\n")) {
			t.Errorf("%+v", w)
		}
		parseUevent([]byte(s))
		hasPowerKey(s)
		isPowerPress([]byte(s))
	})
}
