package inventory

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// maxCPUInfo is the most that is read of /proc/cpuinfo, in bytes: about 1500 bytes a thread.
const maxCPUInfo = 8 << 20

// maxFlags bounds the flags of a processor.
const maxFlags = 512

// cpus reads the sockets from /proc/cpuinfo. Machines that name no sockets (arm64) have one.
func cpus(proc string) ([]agentv1.CPU, error) {
	sockets := map[int]*agentv1.CPU{}
	cores := map[[2]int]bool{}
	for block := range bytes.SplitSeq(readBytes(proc+"/cpuinfo", maxCPUInfo), []byte("\n\n")) {
		f := fields(block)
		if _, ok := f["processor"]; !ok {
			continue
		}
		id := number(f["physical id"])
		c := sockets[id]
		if c == nil {
			if len(sockets) == maxSockets {
				return sorted(sockets), fmt.Errorf("there are more than %d sockets", maxSockets)
			}
			flags := strings.Fields(f["flags"] + " " + f["Features"])
			c = &agentv1.CPU{Socket: id, Model: text(f["model name"]), Vendor: text(f["vendor_id"]), Flags: flags[:min(len(flags), maxFlags)]}
			sockets[id] = c
		}
		c.Threads++
		core := [2]int{id, number(f["core id"])}
		if _, named := f["core id"]; !named {
			core[1] = c.Threads
		}
		if !cores[core] {
			cores[core] = true
			c.Cores++
		}
	}
	if len(sockets) == 0 {
		return nil, errors.New("the kernel lists no processor")
	}
	return sorted(sockets), nil
}

func sorted(m map[int]*agentv1.CPU) []agentv1.CPU {
	var out []agentv1.CPU
	for _, c := range m {
		out = append(out, *c)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Socket < out[j].Socket })
	return out
}

// fields reads "name : value" lines.
func fields(block []byte) map[string]string {
	out := map[string]string{}
	s := bufio.NewScanner(bytes.NewReader(block))
	s.Buffer(nil, 64<<10)
	for s.Scan() {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok {
			out[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return out
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // absent or unreadable: 0
	return n
}

// memTotal reads the memory the kernel can use, in bytes.
func memTotal(proc string) (int64, error) {
	v, unit, _ := strings.Cut(fields(readBytes(proc+"/meminfo", 64<<10))["MemTotal"], " ")
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || unit != "kB" || n < 0 || n > 1<<50 {
		return 0, errors.New("the kernel does not tell the memory")
	}
	return n << 10, nil
}
