package commission

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// tree writes a tree of files and gives its root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// ask makes one test on a machine.
func ask(t *testing.T, cfg Config, order agentv1.Test) *agentv1.TestResult {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.Disks == nil {
		cfg.Disks = func(context.Context) ([]agentv1.Disk, error) { return nil, nil }
	}
	if cfg.Ports == nil {
		cfg.Ports = func() ([]agentv1.NIC, error) { return nil, nil }
	}
	r, err := New(cfg).Run(t.Context(), order, func(agentv1.ProgressReport) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	return r
}

// outcomeIs checks a result and a part of its message.
func outcomeIs(t *testing.T, r *agentv1.TestResult, result, message string) {
	t.Helper()
	if r.Result != result || !strings.Contains(r.Message, message) {
		t.Errorf("%s (%s), not %s (%s); log:\n%s", r.Result, r.Message, result, message, r.Log)
	}
}

// measured finds a value.
func measured(t *testing.T, r *agentv1.TestResult, subject, name string) agentv1.TestValue {
	t.Helper()
	for _, v := range r.Values {
		if v.Subject == subject && v.Name == name {
			return v
		}
	}
	t.Errorf("%s %s was not measured: %+v", subject, name, r.Values)
	return agentv1.TestValue{}
}

func disks(all ...agentv1.Disk) func(context.Context) ([]agentv1.Disk, error) {
	return func(context.Context) ([]agentv1.Disk, error) { return all, nil }
}

// Every test of the catalog is known here: what the site may order, this agent can do or say why not.
func TestEveryKindIsServed(t *testing.T) {
	root := t.TempDir()
	for _, k := range app.TestKinds() {
		order := agentv1.Test{Test: k.ID, With: map[string]float64{"seconds": 0.05}, Script: "exit 0"}
		r := ask(t, Config{Sys: root, Proc: root, Dev: root, Shell: []string{"/bin/sh"}}, order)
		if r.Test != k.ID || r.Result == "" || r.Result == agentv1.TestNotRun && r.Message == "" || r.Ended.Before(r.Started) {
			t.Errorf("%+v", r)
		}
	}
	_, err := New(Config{Log: slog.New(slog.DiscardHandler)}).Run(t.Context(), agentv1.Test{Test: "burn"}, func(agentv1.ProgressReport) {})
	if e, ok := app.AsError(err); !ok || e.Reason != "no-such-test" || e.WayOut == "" {
		t.Errorf("an unknown test: %v", err)
	}
}

func TestCancelled(t *testing.T) {
	why := errors.New("the workflow was aborted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg := Config{Log: slog.New(slog.DiscardHandler), Shell: []string{"/bin/sh"}}
	order := agentv1.Test{Test: "script", Script: "echo begun; exec sleep 600"}
	_, err := New(cfg).Run(ctx, order, func(p agentv1.ProgressReport) { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
}

func TestCPU(t *testing.T) {
	if got := compute(computeSeed); got != computed {
		t.Fatalf("a round gives %#x", got)
	}
	if compute(computeSeed+1) == computed {
		t.Error("the result does not depend on the work")
	}
	sys := tree(t, map[string]string{
		"class/hwmon/hwmon0/name": "nvme\n", "class/hwmon/hwmon0/temp1_input": "99000\n",
		"class/hwmon/hwmon1/name": "coretemp\n", "class/hwmon/hwmon1/temp1_input": "61000\n", "class/hwmon/hwmon1/temp2_input": "72500\n",
		"class/hwmon/hwmon1/temp3_input":                               "garbage",
		"devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "18446744073709551615\n", "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count": "7\n",
	})
	r := ask(t, Config{Sys: sys}, agentv1.Test{Test: "cpu", With: map[string]float64{"seconds": 0.2, "maxTemperature": 70}})
	outcomeIs(t, r, agentv1.TestFailed, "coretemp highest temperature: 72.5 °C, at most 70")
	if v := measured(t, r, "processors", "throttled"); v.Value != 0 {
		t.Errorf("%+v", v)
	}
	if v := measured(t, r, "slowest processor", "speed"); v.Value <= 0 {
		t.Errorf("%+v", v)
	}
	r = ask(t, Config{Sys: t.TempDir()}, agentv1.Test{Test: "cpu", With: map[string]float64{"seconds": 0.05}})
	outcomeIs(t, r, agentv1.TestPassed, "")
	if v := measured(t, r, "processor", "temperature"); !strings.Contains(v.Text, "no sensor") {
		t.Errorf("%+v", v)
	}
}

func TestMemory(t *testing.T) {
	enough := "MemTotal: 1048576 kB\nMemFree: 1 kB\nMemAvailable: 229376 kB\n"
	sys := tree(t, map[string]string{"devices/system/edac/mc/mc0/ce_count": "3", "devices/system/edac/mc/mc0/ue_count": "0"})
	r := ask(t, Config{Sys: sys, Proc: tree(t, map[string]string{"meminfo": enough})}, agentv1.Test{Test: "memory"})
	outcomeIs(t, r, agentv1.TestPassed, "")
	if v := measured(t, r, "memory", "tested"); v.Value != 33.554 { // 224 MiB free, 192 of them kept
		t.Errorf("%+v", v)
	}
	if v := measured(t, r, "memory", "not reached"); !strings.Contains(v.Text, "1040 MB of 1073") {
		t.Errorf("%+v", v)
	}
	for text, want := range map[string]string{
		"MemTotal: 262144 kB\nMemAvailable: 204800 kB\n": agentv1.TestNotRun,
		"":                               agentv1.TestError,
		"MemTotal: -1 kB\nMemAvailable:": agentv1.TestError,
		"MemTotal: 10 kB\nMemAvailable: 99999999999999999999 kB": agentv1.TestError,
	} {
		outcomeIs(t, ask(t, Config{Sys: sys, Proc: tree(t, map[string]string{"meminfo": text})}, agentv1.Test{Test: "memory"}), want, "")
	}
}

func TestPatternsFindWhatIsWrong(t *testing.T) {
	words := make([]uint64, 4096)
	for _, p := range patterns {
		fill(words, 100, p)
		if n, _ := check(words, 100, p); n != 0 {
			t.Errorf("%s: %d words differ", p.name, n)
		}
		words[17] ^= 1 << 40
		words[4095]++
		if n, at := check(words, 100, p); n != 2 || at != 117 {
			t.Errorf("%s: %d words differ, the first at %d", p.name, n, at)
		}
		if n, _ := check(words, 101, p); n < 2 || strings.Contains(p.name, "addresses") && n != len(words) {
			t.Errorf("%s: words at another address: %d", p.name, n)
		}
	}
}

func TestDiskRead(t *testing.T) {
	dev := tree(t, map[string]string{"sda": strings.Repeat("x", 3<<20), "sdb": "", "sdc": strings.Repeat("y", 1<<20)})
	all := disks(agentv1.Disk{Name: "sda", Bytes: 3 << 20}, agentv1.Disk{Name: "sdb", Bytes: 9, Removable: true}, agentv1.Disk{Name: "sdc", Bytes: 1, Virtual: true},
		agentv1.Disk{Name: "sdd", Bytes: 1, Transport: "iscsi"})
	r := ask(t, Config{Disks: all, Dev: dev}, agentv1.Test{Test: "disk-read"})
	outcomeIs(t, r, agentv1.TestPassed, "")
	if v := measured(t, r, "sda", "read"); v.Value != 3.146 {
		t.Errorf("%+v", v)
	}
	if len(r.Skipped) != 1 || !strings.HasPrefix(r.Skipped[0], "sdd: ") {
		t.Errorf("skipped %q", r.Skipped)
	}
	r = ask(t, Config{Disks: all, Dev: dev}, agentv1.Test{Test: "disk-read", With: map[string]float64{"megabytes": 1, "minMBps": 1e9}})
	outcomeIs(t, r, agentv1.TestFailed, "sda rate")
	if v := measured(t, r, "sda", "rate"); !v.Failed || v.Limit != "at least 1e+09" {
		t.Errorf("%+v", v)
	}
	for name, c := range map[string]struct {
		d       agentv1.Disk
		result  string
		message string
	}{
		"gone":  {agentv1.Disk{Name: "sdx", Bytes: 1}, agentv1.TestFailed, "sdx open"},
		"empty": {agentv1.Disk{Name: "sdb", Bytes: 1}, agentv1.TestFailed, "sdb unexpected EOF"},
		"none":  {agentv1.Disk{Name: "sdb", Removable: true}, agentv1.TestNotRun, "no fixed disk"},
	} {
		t.Run(name, func(t *testing.T) {
			outcomeIs(t, ask(t, Config{Disks: disks(c.d), Dev: dev}, agentv1.Test{Test: "disk-read"}), c.result, c.message)
		})
	}
}

func TestLink(t *testing.T) {
	sys := tree(t, map[string]string{"class/net/eno1/duplex": "full\n", "class/net/eno2/duplex": "half\n", "class/net/eth0/duplex": "unknown\n"})
	eno1 := agentv1.NIC{Name: "eno1", Link: true, Speed: 10000, LLDP: &agentv1.LLDP{System: "tor-1", Port: "Ethernet1"}}
	eno2, eth0 := agentv1.NIC{Name: "eno2", Link: true, Speed: 100}, agentv1.NIC{Name: "eth0", Link: true}
	for name, c := range map[string]struct {
		ports           []agentv1.NIC
		with            map[string]float64
		result, message string
	}{
		"all well":           {[]agentv1.NIC{eno1, {Name: "eno3"}}, nil, agentv1.TestPassed, ""},
		"a port without":     {[]agentv1.NIC{eno1, {Name: "eno3"}}, map[string]float64{"minPorts": 2}, agentv1.TestFailed, "ports with a link: 1 ports, at least 2"},
		"half duplex":        {[]agentv1.NIC{eno1, eno2}, nil, agentv1.TestFailed, "half duplex"},
		"half duplex is let": {[]agentv1.NIC{eno1, eno2}, map[string]float64{"halfDuplex": 1}, agentv1.TestPassed, ""},
		"too slow":           {[]agentv1.NIC{eno1, eno2}, map[string]float64{"halfDuplex": 1, "minMbps": 1000}, agentv1.TestFailed, "eno2 speed: 100 Mbit/s, at least 1000"},
		"does not say":       {[]agentv1.NIC{eth0}, map[string]float64{"minMbps": 1000}, agentv1.TestPassed, ""},
		"the BMC's own":      {[]agentv1.NIC{{Name: "usb0", BMCUSB: true, Link: true}}, nil, agentv1.TestNotRun, "no network port"},
		"none":               {nil, nil, agentv1.TestNotRun, "no network port"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(t, Config{Sys: sys, Ports: func() ([]agentv1.NIC, error) { return c.ports, nil }}, agentv1.Test{Test: "link", With: c.with})
			outcomeIs(t, r, c.result, c.message)
			if name == "does not say" && len(r.Skipped) != 1 {
				t.Errorf("skipped %q", r.Skipped)
			}
			if len(c.ports) > 1 && measured(t, r, "eno1", "leads to").Text != "tor-1 port Ethernet1" {
				t.Error("the neighbour is not told")
			}
		})
	}
}

func TestThroughput(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		switch {
		case r.URL.Path != "/boot"+agentv1.PathStream:
			http.NotFound(w, r)
		case n == 1_000_000:
			_, _ = io.CopyN(w, zeros{}, n)
		case n == 3_000_000: // cut
			w.Header().Set("Content-Length", "3000000")
			_, _ = io.CopyN(w, zeros{}, 1000)
		}
	}))
	defer site.Close()
	for name, c := range map[string]struct {
		urls            []string
		with            map[string]float64
		result, message string
	}{
		"whole":              {[]string{site.URL + "/boot/"}, map[string]float64{"megabytes": 1}, agentv1.TestPassed, ""},
		"second address":     {[]string{site.URL + "/nothing", site.URL + "/boot"}, map[string]float64{"megabytes": 1}, agentv1.TestPassed, ""},
		"cut":                {[]string{site.URL + "/boot"}, map[string]float64{"megabytes": 3}, agentv1.TestNotRun, "EOF"},
		"a site without":     {[]string{site.URL + "/nothing"}, nil, agentv1.TestNotRun, "404"},
		"no site":            {nil, nil, agentv1.TestNotRun, "no address"},
		"nonsense":           {[]string{":"}, nil, agentv1.TestNotRun, "missing protocol"},
		"a redirect is none": {[]string{redirect(t, site.URL)}, nil, agentv1.TestNotRun, "302"},
	} {
		t.Run(name, func(t *testing.T) {
			outcomeIs(t, ask(t, Config{BootURLs: c.urls}, agentv1.Test{Test: "throughput", With: c.with}), c.result, c.message)
		})
	}
}

// stalling is a site that sends 5000 bytes of anything, and then nothing.
type stalling struct{}

func (stalling) RoundTrip(r *http.Request) (*http.Response, error) {
	until := readFunc(func([]byte) (int, error) { <-r.Context().Done(); return 0, context.Cause(r.Context()) })
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 5000)), until))}, nil
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// A stream that has not ended in its time is judged by what came until then.
func TestThroughputUntilTheTimeIsUp(t *testing.T) {
	for limit, want := range map[float64][2]string{0: {agentv1.TestPassed, ""}, 50: {agentv1.TestFailed, "at least 50"}} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{BootURLs: []string{"http://192.0.2.1/boot"}, Client: &http.Client{Transport: stalling{}}}
			r := ask(t, cfg, agentv1.Test{Test: "throughput", With: map[string]float64{"megabytes": 2, "seconds": 10, "minMBps": limit}})
			outcomeIs(t, r, want[0], want[1])
		})
	}
}

func redirect(t *testing.T, to string) string {
	s := httptest.NewServer(http.RedirectHandler(to, http.StatusFound))
	t.Cleanup(s.Close)
	return s.URL
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Whatever devices say, a result fits into a report and holds text alone.
func TestResultsAreBounded(t *testing.T) {
	noise := strings.Repeat("\x00\x1b[31mé\xff", 4000)
	var ports []agentv1.NIC
	for i := range 1000 {
		ports = append(ports, agentv1.NIC{Name: "eth" + strconv.Itoa(i), Link: i > 0, LLDP: &agentv1.LLDP{System: noise, Port: noise}})
	}
	r := ask(t, Config{Sys: t.TempDir(), Ports: func() ([]agentv1.NIC, error) { return ports, nil }}, agentv1.Test{Test: "link", With: map[string]float64{"minMbps": 1, "minPorts": 2000}})
	raw, err := json.Marshal(r)
	if err != nil || len(raw) > 400<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if strings.ContainsAny(string(raw), "\x00\x1b") || strings.Contains(string(raw), `\u001b`) {
		t.Error("control characters came through")
	}
	outcomeIs(t, r, agentv1.TestFailed, "at least 2000")
	if r.Started.IsZero() || time.Since(r.Ended) > time.Hour {
		t.Errorf("%v to %v", r.Started, r.Ended)
	}
}
