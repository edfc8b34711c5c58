package host

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/sandbox"
)

// State is where a plugin stands.
type State string

// The states of a plugin.
const (
	Starting State = "starting" // its process was or is being started and has not introduced itself yet
	Running  State = "running"  // it answers calls
	Stopping State = "stopping" // it takes no calls and finishes those it has
	BackOff  State = "backoff"  // it ended or did not start; it is started again at Status.Next
	Refused  State = "refused"  // starting it again does not help until pins, file or configuration change
	Stopped  State = "stopped"  // the host stops, or the plugin was removed
)

// Status is what is known of a plugin, for people.
type Status struct {
	Name     string        `json:"name"`
	Bundled  bool          `json:"bundled,omitempty"` // inside the appliance's own executable
	SHA256   string        `json:"sha256"`            // the pin; of a bundled plugin, this program's, "" until it is known
	State    State         `json:"state"`
	Reason   string        `json:"reason,omitempty"` // why it does not run
	WayOut   string        `json:"wayOut,omitempty"` // what helps when it is refused
	Serving  bool          `json:"serving"`          // it runs and says that it can work
	Message  string        `json:"message,omitempty"`
	Since    time.Time     `json:"since"` // of the state
	Next     time.Time     `json:"next,omitzero"`
	PID      int           `json:"pid,omitempty"`
	Memory   int64         `json:"memory,omitempty"` // resident bytes of its process, from /proc
	Restarts int           `json:"restarts"`         // starts after the first
	LastErr  string        `json:"lastError,omitempty"`
	LastAt   time.Time     `json:"lastErrorAt,omitzero"`
	Version  string        `json:"version,omitempty"` // the plugin's own
	Drivers  []Served      `json:"drivers,omitempty"`
	Skipped  []string      `json:"skipped,omitempty"` // sentences: drivers it serves that were not taken
	Sandbox  sandbox.Facts `json:"sandbox"`
	Calls    int           `json:"calls"` // in flight
}

// Served is a driver a plugin serves.
type Served struct {
	ID      string   `json:"id"`
	Version string   `json:"version"`
	Kinds   []string `json:"kinds"`
}

// residentBytes is VmRSS of a process, 0 when it is gone or not to be seen.
func residentBytes(pid int) int64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("\nVmRSS:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(line)), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}
