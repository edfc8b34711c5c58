package virtual

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	consoleLog    = "console.log"
	consoleSocket = "console.sock"
	// maxConsoleLog is where the log is rotated to console.log.1, once: a guest cannot fill the disk.
	maxConsoleLog = 16 << 20
	maxLine       = 4096
	tailBytes     = 64 << 10
	maxAttached   = 4
)

// Line is one line of a serial console without its end and without terminal control.
type Line struct {
	At         time.Time
	SincePower time.Duration // since the guest got power, or rebooted
	Text       string
}

// Console is a serial console: it is kept in a log file, offered on a unix socket, and read line by line.
// It outlives the guest's power cycles. Its methods may be called from any goroutine.
type Console struct {
	onLine func(Line)

	mu       sync.Mutex // protects what follows
	log      *os.File   // nil without a directory
	logged   int64
	tail     []byte
	split    splitter
	powered  time.Time
	watches  map[*Watch]struct{}
	guest    io.Writer // the running guest's serial input, nil while off
	attached map[net.Conn]chan []byte
	listener net.Listener // nil without a directory
	closed   bool
	serving  sync.WaitGroup
}

// newConsole opens the log and socket in dir; with dir "" there is neither.
func newConsole(dir string, onLine func(Line)) (*Console, error) {
	c := &Console{onLine: onLine, watches: map[*Watch]struct{}{}, attached: map[net.Conn]chan []byte{}}
	if dir == "" {
		return c, nil
	}
	f, err := os.OpenFile(filepath.Join(dir, consoleLog), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the console log: %w", err)
	}
	path := filepath.Join(dir, consoleSocket)
	_ = os.Remove(path) // left by a killed run: nobody listens on it, since the directory is this machine's alone
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the console socket: %w", err), f.Close())
	}
	c.log, c.listener = f, l
	if st, err := f.Stat(); err == nil {
		c.logged = st.Size()
	}
	c.serving.Go(c.accept)
	return c, nil
}

// Write types on the console. Without power the keys are lost, as on hardware.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	guest := c.guest
	c.mu.Unlock()
	if guest == nil {
		return len(p), nil
	}
	return guest.Write(p)
}

// Tail is the last 64 KiB the console printed, with terminal control.
func (c *Console) Tail() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]byte(nil), c.tail...)
}

// SocketPath is the unix socket that offers the console to terminal programs, "" without a directory.
func (c *Console) SocketPath() string {
	if c.listener == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// Watch is a look-out for one line.
type Watch struct {
	console *Console
	re      *regexp.Regexp
	found   chan Line
}

// Watch starts to look for the first line printed from now on that matches. A line that has not ended yet (a prompt)
// counts as printed so far. The caller must call Wait, once.
func (c *Console) Watch(re *regexp.Regexp) *Watch {
	w := &Watch{console: c, re: re, found: make(chan Line, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[w] = struct{}{}
	return w
}

// Wait waits for the line and ends the watch.
func (w *Watch) Wait(ctx context.Context) (Line, error) {
	defer func() {
		w.console.mu.Lock()
		delete(w.console.watches, w)
		w.console.mu.Unlock()
	}()
	select {
	case l := <-w.found:
		return l, nil
	case <-ctx.Done():
		return Line{}, fmt.Errorf("waiting for %q on the console: %w", w.re, context.Cause(ctx))
	}
}

// powerOn marks the start of a guest whose serial input is w.
func (c *Console) powerOn(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.powered, c.guest, c.split = time.Now(), w, splitter{}
}

// powerOff marks its end.
func (c *Console) powerOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guest = nil
}

// print takes what the guest wrote.
func (c *Console) print(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record(p)
	now := time.Now()
	for _, text := range c.split.add(p) {
		l := Line{At: now, SincePower: now.Sub(c.powered), Text: text}
		if c.onLine != nil {
			c.onLine(l)
		}
		c.match(l)
	}
	if len(c.split.partial) > 0 {
		c.match(Line{At: now, SincePower: now.Sub(c.powered), Text: c.split.text()})
	}
	for _, out := range c.attached {
		select {
		case out <- append([]byte(nil), p...):
		default: // a slow reader loses bytes, never holds the guest
		}
	}
}

func (c *Console) match(l Line) {
	for w := range c.watches {
		if w.re.MatchString(l.Text) {
			select {
			case w.found <- l:
			default:
			}
		}
	}
}

// record keeps p in the tail and in the log.
func (c *Console) record(p []byte) {
	c.tail = append(c.tail, p...)
	if over := len(c.tail) - tailBytes; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
	if c.log == nil {
		return
	}
	if c.logged+int64(len(p)) > maxConsoleLog {
		c.rotate()
	}
	n, _ := c.log.Write(p)
	c.logged += int64(n)
}

// rotate starts the log anew and keeps the old one beside it.
func (c *Console) rotate() {
	name := c.log.Name()
	_ = os.Rename(name, name+".1")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = c.log.Close()
	c.log, c.logged = f, 0
}

// accept serves the unix socket until it closes.
func (c *Console) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		out := make(chan []byte, 256)
		c.mu.Lock()
		refuse := c.closed || len(c.attached) >= maxAttached
		if !refuse {
			c.attached[conn] = out
			c.serving.Go(func() { c.feed(conn, out) })
			c.serving.Go(func() { c.keys(conn) })
		}
		c.mu.Unlock()
		if refuse {
			_ = conn.Close()
		}
	}
}

// feed sends output to one attached terminal.
func (c *Console) feed(conn net.Conn, out <-chan []byte) {
	for p := range out {
		if _, err := conn.Write(p); err != nil {
			_ = conn.Close() // ends keys, which detaches
		}
	}
}

// keys passes what one attached terminal types to the guest, until it goes.
func (c *Console) keys(conn net.Conn) {
	buf := make([]byte, 512)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			_, _ = c.Write(buf[:n])
		}
		if err != nil {
			break
		}
	}
	_ = conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.attached[conn])
	delete(c.attached, conn)
}

// close removes the socket, ends every attached terminal and closes the log.
func (c *Console) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	for conn := range c.attached {
		_ = conn.Close()
	}
	c.mu.Unlock()
	if c.listener != nil {
		_ = c.listener.Close() // removes the socket file
	}
	c.serving.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log != nil {
		_ = c.log.Close()
		c.log = nil
	}
}

// control matches terminal control: CSI, charset and reset sequences, and every other control character but tab.
var control = regexp.MustCompile(`\x1b\[[0-9;?=]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[ -~]?|[\x00-\x08\x0b-\x1f\x7f]`)

// Plain is console output as a person reads it: without terminal control.
func Plain(b []byte) string {
	var out strings.Builder
	for line := range strings.SplitSeq(strings.ToValidUTF8(string(b), "\ufffd"), "\n") {
		out.WriteString(control.ReplaceAllString(line, "") + "\n")
	}
	return strings.TrimSpace(out.String())
}

// splitter cuts a byte stream into lines of at most maxLine octets.
type splitter struct{ partial []byte }

func (s *splitter) add(p []byte) []string {
	var lines []string
	for _, b := range p {
		if b == '\n' || len(s.partial) >= maxLine {
			lines = append(lines, s.text())
			s.partial = s.partial[:0]
		}
		if b != '\n' {
			s.partial = append(s.partial, b)
		}
	}
	return lines
}

// text is the line so far, as a person reads it.
func (s *splitter) text() string {
	return control.ReplaceAllString(strings.ToValidUTF8(string(s.partial), "�"), "")
}
