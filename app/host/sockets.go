package host

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Socket is one listening or bound socket of the host.
type Socket struct {
	Proto   string     `json:"proto"` // "udp", "tcp"
	Addr    netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	Inode   uint64     `json:"-"`
	PID     int        `json:"pid,omitempty"`
	Process string     `json:"process,omitempty"` // /proc/PID/comm; "" when it cannot be seen
}

// maxSockets bounds what is read of one /proc/net table.
const maxSockets = 65536

// Sockets lists listening TCP and bound UDP sockets below a /proc root, with their processes where they can be seen.
func Sockets(proc string) ([]Socket, error) {
	var all []Socket
	for _, name := range []string{"udp", "udp6", "tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(proc, "net", name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading sockets: %w", err)
		}
		all = append(all, parseSockets(f, strings.TrimSuffix(name, "6"))...)
		f.Close()
	}
	owners(proc, all)
	return all, nil
}

// parseSockets reads the table of Documentation/networking/proc_net_tcp.rst; malformed lines are passed over.
func parseSockets(r io.Reader, proto string) []Socket {
	var out []Socket
	for sc := bufio.NewScanner(r); sc.Scan() && len(out) < maxSockets; {
		f := strings.Fields(sc.Text())
		if len(f) < 10 {
			continue
		}
		if proto == "tcp" && f[3] != "0A" { // TCP_LISTEN
			continue
		}
		addr, port, ok := parseAddr(f[1])
		if !ok {
			continue
		}
		inode, _ := strconv.ParseUint(f[9], 10, 64)
		out = append(out, Socket{Proto: proto, Addr: addr, Port: port, Inode: inode})
	}
	return out
}

// parseAddr reads "0100007F:0043": each 32-bit word of the address is in host byte order.
func parseAddr(s string) (netip.Addr, uint16, bool) {
	h, p, ok := strings.Cut(s, ":")
	if !ok {
		return netip.Addr{}, 0, false
	}
	b, err := hex.DecodeString(h)
	port, perr := strconv.ParseUint(p, 16, 16)
	if err != nil || perr != nil || (len(b) != 4 && len(b) != 16) {
		return netip.Addr{}, 0, false
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	addr, ok := netip.AddrFromSlice(b)
	return addr, uint16(port), ok
}

// owners fills in PID and Process by looking through /proc/*/fd for the inodes.
func owners(proc string, socks []Socket) {
	byInode := map[string][]int{}
	for i, s := range socks {
		key := fmt.Sprintf("socket:[%d]", s.Inode)
		byInode[key] = append(byInode[key], i)
	}
	dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		fds, _ := os.ReadDir(filepath.Join(d, "fd"))
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join(d, "fd", fd.Name()))
			if err != nil {
				continue
			}
			for _, i := range byInode[target] {
				socks[i].PID = pid
				if comm, err := os.ReadFile(filepath.Join(d, "comm")); err == nil {
					socks[i].Process = printable(strings.TrimSpace(string(comm)), 32)
				}
			}
		}
	}
}

func printable(s string, n int) string {
	out := strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	if len(out) > n {
		out = out[:n]
	}
	return out
}
