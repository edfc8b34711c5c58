package figures

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/agent/disk/diskbench"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{
		{[]float64{7}, 7}, {[]float64{3, 1, 2}, 2}, {[]float64{1, 1, 100}, 1}, {[]float64{5, 1}, 5}, {[]float64{4, 1, 3, 2}, 3}, {[]float64{-1, 0, -2}, -1},
	} {
		before := slices.Clone(c.v)
		if got := median(c.v); got != c.want || !slices.Equal(before, c.v) {
			t.Errorf("median of %v is %v, want %v; it is %v now", before, got, c.want, c.v)
		}
	}
	if got := list([]float64{1.25, 2, 0.049}, 1); got != "1.2 2.0 0.0" {
		t.Errorf("list %q", got)
	}
	if most(nil) != 0 || most([]int64{3, 9, 4}) != 9 {
		t.Error("most is not the most")
	}
	if got := pairs(diskbench.Result{Pairs: [][2]float64{{2e6, 1e6}, {1.6e6, 0}}}); got != "2/1 2/0" {
		t.Errorf("pairs %q", got)
	}
}

// A line of a status file is found by its whole name; a file without it, or no file, is no number.
func TestFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status")
	text := "Name:\tbcd\nVmHWMark:\t1 kB\nVmRSS:\t   2048 kB\nmodel name\t: Some CPU: fast\nVmRSS:\t9 kB\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"VmRSS": "2048 kB", "model name": "Some CPU: fast", "VmHWM": "unknown", "": "unknown"} {
		if got := field(path, name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	if got := field(path+"x", "VmRSS"); got != "unknown" {
		t.Errorf("no file: %q", got)
	}
	if n, err := memoryOf(os.Getpid(), "VmRSS"); err != nil || n < 1<<20 {
		t.Errorf("this process has %d bytes, %v", n, err)
	}
	for _, name := range []string{"VmNone", "Name"} {
		if _, err := memoryOf(os.Getpid(), name); err == nil {
			t.Errorf("%s is a size", name)
		}
	}
	if got := firstLine("bcd-no-such-program"); got != "bcd-no-such-program is missing" {
		t.Errorf("%q", got)
	}
	if got := lastLine(bytes.Repeat([]byte("x"), 300)); len(got) != 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// What perfdhcp prints: the achieved rate is the one that is meant, not those that were asked for.
func TestPerfdhcpRate(t *testing.T) {
	out := "Running: perfdhcp -4 -r 5000\n***Rate statistics***\nRate: 1234.56 4-way exchanges/second, expected rate: 5000\n***Statistics for: DISCOVER-OFFER***\n"
	if m := perfRate.FindStringSubmatch(out); m == nil || m[1] != "1234.56" {
		t.Errorf("found %v", m)
	}
	if m := perfRate.FindStringSubmatch("expected rate: 5000 4-way exchanges/second"); m != nil {
		t.Errorf("found %v", m)
	}
}

// The console of a machine that is powered on twice, line by line.
func TestBoots(t *testing.T) {
	var b boots
	if _, err := b.before(time.Now()); app.CodeOf(err) != app.Unavailable || b.last() != "none seen" {
		t.Errorf("nothing was seen: %v, %q", err, b.last())
	}
	on := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, l := range []struct {
		on    time.Time
		since time.Duration
		text  string
	}{
		{on, 2 * time.Second, "Linux version 6.1"}, {on, 3 * time.Second, "Run /init as init process"}, {on, 4 * time.Second, "the network is up"},
		{on, 9 * time.Second, "Linux version 6.1, said again"},
		{on.Add(time.Minute), time.Second, "Linux version 6.1"},
	} {
		b.line("node", virtual.Line{At: l.on.Add(l.since), SincePower: l.since, Text: l.text})
	}
	if got, err := b.before(on.Add(30 * time.Second)); err != nil || !got.Equal(on) {
		t.Errorf("before the second: %v, %v", got, err)
	}
	if got, err := b.before(on.Add(time.Hour)); err != nil || !got.Equal(on.Add(time.Minute)) {
		t.Errorf("the last: %v, %v", got, err)
	}
	if _, err := b.before(on); err == nil {
		t.Error("it was on before it was on")
	}
	if got := b.last(); got != "kernel started 2.0, ramdisk 3.0, network 4.0" {
		t.Errorf("the marks are %q", got)
	}
}

func TestEndedStep(t *testing.T) {
	at := time.Now()
	w := &workflow.Workflow{Verb: "deploy", Steps: []workflow.Step{{ID: "write", Ended: at}, {ID: "home"}}}
	if got, err := ended(w, "write"); err != nil || !got.Equal(at) {
		t.Errorf("%v, %v", got, err)
	}
	for _, id := range []string{"home", "kexec"} {
		if _, err := ended(w, id); err == nil {
			t.Errorf("%s has ended", id)
		}
	}
}

// A frame is one that a kernel takes: lengths, ports, and a header whose checksum comes to nothing.
func TestFrame(t *testing.T) {
	msg := bytes.Repeat([]byte{7}, 301)
	f := frame(stormMAC(258), msg)
	if !bytes.Equal(f[6:12], net.HardwareAddr{2, 0, 0x5e, 0, 1, 2}) || binary.BigEndian.Uint16(f[12:]) != 0x0800 || !bytes.HasSuffix(f, msg) {
		t.Errorf("% x", f[:14])
	}
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	if sum = sum>>16 + sum&0xffff; sum != 0xffff {
		t.Errorf("the checksum comes to %#x", sum)
	}
	if n := binary.BigEndian.Uint16(f[16:]); int(n) != len(f)-14 {
		t.Errorf("length %d of %d", n, len(f)-14)
	}
	if n := binary.BigEndian.Uint16(f[38:]); int(n) != len(msg)+8 {
		t.Errorf("UDP length %d", n)
	}
}

// Figures are printed when they were asked for, each name is measured once, and what does not exist is named with all that do.
func TestPut(t *testing.T) {
	var out strings.Builder
	s := &session{Config: Config{Only: []string{"a"}, Out: &out}}
	s.put("a", 1.005, 1)
	s.put("b", 2, 0)
	if out.String() != "a 1.0\n" {
		t.Errorf("printed %q", out.String())
	}
	if all := Names(); len(all) == 0 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("the names are %v", all)
	}
	if os.Geteuid() != 0 {
		t.Skip("left out: what follows asks for a figure by name, which needs root")
	}
	err := Run(t.Context(), Config{Only: []string{"no_such_figure"}})
	if e, ok := app.AsError(err); !ok || e.Code != app.InvalidInput || !strings.Contains(e.WayOut, "dhcp_ratio_kea") {
		t.Errorf("%v", err)
	}
}
