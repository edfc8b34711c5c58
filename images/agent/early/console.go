package early

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// consoles writes to every console of the kernel's command line: /dev/console is only the last one, and the person who
// looks may sit before another.
type consoles struct{ ttys []io.Writer }

// openConsoles opens what the kernel says is active; without any it is the standard output.
func openConsoles(sys, dev string) *consoles {
	c := &consoles{}
	for _, n := range consoleNames(sys) {
		if f, err := os.OpenFile(filepath.Join(dev, n), os.O_WRONLY, 0); err == nil {
			c.ttys = append(c.ttys, f)
		}
	}
	if len(c.ttys) == 0 {
		c.ttys = []io.Writer{os.Stdout}
	}
	return c
}

// consoleNames lists the active consoles, as "tty0" and "ttyS0".
func consoleNames(sys string) []string {
	b, err := os.ReadFile(filepath.Join(sys, "class/tty/console/active"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// Write never fails: a console that is gone must not stop the machine's work.
func (c *consoles) Write(p []byte) (int, error) {
	for _, w := range c.ttys {
		_, _ = w.Write(p)
	}
	return len(p), nil
}
