package host

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Finding is one line of a check.
type Finding struct {
	Level   string `json:"level"`   // "ok", "warn", "fail"
	Code    string `json:"code"`    // kebab-case
	Message string `json:"message"` // a sentence
	WayOut  string `json:"wayOut,omitempty"`
}

// Need is a port the appliance will open.
type Need struct {
	Proto string
	Port  uint16
	For   string // "DHCP"
}

// Facts is what a check looks at.
type Facts struct {
	Sockets    []Socket
	Self       int // pid whose sockets are ours
	Interfaces []Interface
	FreeBytes  int64 // at the data directory
	IPMITool   bool  // ipmitool is installed
	ClockOK    bool  // the kernel says that something keeps it in time
	CapEff     uint64
	Root       bool
}

// Interface is a network interface of the host.
type Interface struct {
	Name  string   `json:"name"`
	Up    bool     `json:"up"`
	Addrs []string `json:"addresses"`
}

// The capabilities the sockets need (linux/capability.h).
const (
	capNetBindService = 10
	capNetRaw         = 13
)

// minFree is the free space below which a check warns: two images of common size.
const minFree = 20 << 30

// Look gathers the facts of this host.
func Look(proc, dataDir string) (Facts, error) {
	socks, err := Sockets(proc)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Sockets: socks, Self: os.Getpid(), Root: os.Geteuid() == 0, CapEff: capEff(proc)}
	ifs, err := net.Interfaces()
	if err != nil {
		return Facts{}, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, i := range ifs {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		n := Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0}
		addrs, _ := i.Addrs() // an interface that just went away has none
		for _, a := range addrs {
			n.Addrs = append(n.Addrs, a.String())
		}
		f.Interfaces = append(f.Interfaces, n)
	}
	var st unix.Statfs_t
	for d := dataDir; ; d = filepath.Dir(d) {
		if unix.Statfs(d, &st) == nil || d == "/" || d == "." {
			break
		}
	}
	f.FreeBytes = int64(st.Bavail) * st.Bsize
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	f.ClockOK = err == nil && state != unix.TIME_ERROR
	_, err = exec.LookPath("ipmitool")
	f.IPMITool = err == nil
	return f, nil
}

func capEff(proc string) uint64 {
	b, _ := os.ReadFile(filepath.Join(proc, "self", "status"))
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return n
		}
	}
	return 0
}

// rivals are services that answer machines which boot, by the ports they hold.
var rivals = []struct{ port, what string }{{"udp/67", "a DHCP server"}, {"udp/4011", "a proxyDHCP server"}, {"udp/69", "a TFTP server"}, {"udp/53", "a DNS server"}}

// Check judges the facts. It never changes anything.
func Check(f Facts, needs []Need) []Finding {
	var out []Finding
	add := func(level, code, way, format string, args ...any) {
		f := Finding{Level: level, Code: code, Message: fmt.Sprintf(format, args...), WayOut: way}
		if !slices.Contains(out, f) { // one process may hold a port at several addresses
			out = append(out, f)
		}
	}
	held := map[string][]Socket{}
	for _, s := range f.Sockets {
		if s.PID != f.Self || s.PID == 0 {
			key := fmt.Sprintf("%s/%d", s.Proto, s.Port)
			held[key] = append(held[key], s)
		}
	}
	needed := map[string]bool{}
	for _, n := range needs {
		key := fmt.Sprintf("%s/%d", n.Proto, n.Port)
		for _, s := range held[key] {
			if s.Process == program {
				add("ok", "port-ours", "", "%s port %d, for %s, is held by %s, which runs already", n.Proto, n.Port, n.For, holder(s))
			} else {
				add("fail", "port-taken", "stop that service, or choose another port in config.toml", "%s port %d, for %s, is held by %s at %s", n.Proto, n.Port, n.For, holder(s), s.Addr)
			}
		}
		if len(held[key]) == 0 {
			add("ok", "port-free", "", "%s port %d is free for %s", n.Proto, n.Port, n.For)
		}
		needed[key] = true
	}
	for _, r := range rivals {
		if needed[r.port] {
			continue // told above
		}
		for _, s := range held[r.port] {
			add("warn", "rival-service", "make sure that it does not answer on the provisioning network", "%s (%s) runs on this host at %s", r.what, holder(s), s.Addr)
		}
	}
	out = append(out, checkHost(f)...)
	return out
}

func checkHost(f Facts) []Finding {
	var out []Finding
	up := 0
	for _, i := range f.Interfaces {
		if i.Up && len(i.Addrs) > 0 {
			up++
			out = append(out, Finding{Level: "ok", Code: "interface", Message: fmt.Sprintf("interface %s has %s", i.Name, strings.Join(i.Addrs, ", "))})
		}
	}
	if up == 0 {
		out = append(out, Finding{Level: "fail", Code: "no-interface", Message: "no network interface is up with an address", WayOut: "give the provisioning interface a static address"})
	}
	if f.FreeBytes < minFree {
		out = append(out, Finding{Level: "warn", Code: "disk-low", Message: fmt.Sprintf("%.1f GB are free for images", float64(f.FreeBytes)/1e9), WayOut: "give the data directory at least 20 GB"})
	} else {
		out = append(out, Finding{Level: "ok", Code: "disk", Message: fmt.Sprintf("%.1f GB are free for images", float64(f.FreeBytes)/1e9)})
	}
	if f.ClockOK {
		out = append(out, Finding{Level: "ok", Code: "clock", Message: "the clock is kept in time"})
	} else {
		out = append(out, Finding{Level: "warn", Code: "clock-unsynchronised", Message: "nothing keeps this host's clock in time, so machines get no time from it", WayOut: "install chrony or systemd-timesyncd"})
	}
	if f.IPMITool {
		out = append(out, Finding{Level: "ok", Code: "ipmitool", Message: "ipmitool is installed, so BMCs can be driven by IPMI"})
	} else {
		out = append(out, Finding{Level: "warn", Code: "no-ipmitool", Message: "ipmitool is not installed, so BMCs can be driven by Redfish only", WayOut: "apt-get install ipmitool, if you have machines with IPMI alone"})
	}
	for _, c := range []struct {
		name string
		bit  uint
	}{{"CAP_NET_BIND_SERVICE", capNetBindService}, {"CAP_NET_RAW", capNetRaw}} {
		if !f.Root && f.CapEff&(1<<c.bit) == 0 {
			out = append(out, Finding{Level: "fail", Code: "capability-missing", Message: c.name + " is missing, so DHCP and TFTP cannot be served", WayOut: "start bcd by its systemd unit (bcd install), or as root"})
		}
	}
	return out
}

// program is the name under which an appliance runs.
const program = "bcd"

func holder(s Socket) string {
	if s.PID == 0 {
		return "a process that cannot be seen from this account"
	}
	return fmt.Sprintf("%s (pid %d)", s.Process, s.PID)
}
