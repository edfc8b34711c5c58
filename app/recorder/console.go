package recorder

import (
	"bytes"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// KindConsole is the kind of a line that a machine printed on its serial console.
const KindConsole = "console.line"

// Limits of a console.
const (
	maxLine      = 1000 // bytes of one line
	consoleRate  = 200  // lines a second that are kept, over time
	consoleBurst = 2000 // and at once
)

// Console takes what one machine prints, as an io.Writer: a serial-over-LAN session writes into it. It never fails and never
// blocks. It is safe for concurrent use, though lines of several writers mix.
type Console struct {
	r       *Recorder
	machine string

	mu      sync.Mutex
	partial []byte
	cut     bool // the rest of the line is left out
	room    float64
	at      time.Time
	lost    int64
}

// Console gives the entry point for a machine's console.
func (r *Recorder) Console(machineID string) *Console {
	return &Console{r: r, machine: machineID, room: consoleBurst}
}

// Machine is the id of the machine whose console it is.
func (c *Console) Machine() string { return c.machine }

// Write takes bytes and records each line that is complete.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if room := 4*maxLine - len(c.partial); len(line) > room { // escape sequences may be most of a line
			line, c.cut = line[:max(room, 0)], true
		}
		c.partial = append(c.partial, line...)
		if p = rest; ended {
			c.end()
		}
	}
	return n, nil
}

// Line records one whole line.
func (c *Console) Line(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say(text)
}

// end records the line so far. mu must be held.
func (c *Console) end() {
	text := string(c.partial)
	if c.cut {
		text += "…"
	}
	c.partial, c.cut = c.partial[:0], false
	c.say(text)
}

// say records a line, unless they come too fast or it is empty. mu must be held.
func (c *Console) say(text string) {
	if text = Plain(text, maxLine); len(bytes.TrimSpace([]byte(text))) == 0 {
		return
	}
	now := c.r.cfg.Now()
	if since := now.Sub(c.at); since > 0 {
		c.room = min(consoleBurst, c.room+since.Seconds()*consoleRate)
		c.at = now
	}
	if c.room < 1 {
		c.lost++
		return
	}
	c.room--
	if c.lost > 0 {
		c.r.Record(c.r.left(app.Record{MachineID: c.machine}, c.lost, "lines of the console were left out because it printed too fast"))
		c.lost = 0
	}
	c.r.Record(app.Record{Time: now, Kind: KindConsole, MachineID: c.machine, Message: text})
}
