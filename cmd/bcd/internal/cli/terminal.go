package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// terminal is the person's, in raw mode: each key is read as it is pressed. A nil one is none.
type terminal struct {
	fd   int
	was  *term.State
	out  io.Writer // where the machine prints, when that is a terminal too
	once sync.Once
}

// calm undoes what a machine's screens leave behind: colours, a hidden cursor, scrolling regions (soft reset), the second
// screen, reports of the mouse, and marks around what is pasted.
const calm = "\x1b[!p\x1b[?47l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\r\n"

// openTerminal puts the terminal that in is into raw mode; nil when it is none.
func openTerminal(in io.Reader, out io.Writer) (*terminal, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, nil
	}
	t := &terminal{fd: int(f.Fd())}
	if o, ok := out.(*os.File); ok && term.IsTerminal(int(o.Fd())) {
		t.out = o
	}
	var err error
	if t.was, err = term.MakeRaw(t.fd); err != nil {
		return nil, fmt.Errorf("taking the terminal's keys: %w", err)
	}
	return t, nil
}

// restore gives the terminal back as it was.
func (t *terminal) restore() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		if t.out != nil {
			_, _ = io.WriteString(t.out, calm)
		}
		_ = term.Restore(t.fd, t.was)
	})
}

// guard runs f beside the caller. Even its panic leaves the terminal as it was.
func (t *terminal) guard(f func()) {
	go func() {
		whole := false
		defer func() {
			if !whole {
				t.restore()
			}
		}()
		f()
		whole = true
	}()
}

// line writes a line of ours.
func (t *terminal) line(out io.Writer, text string) {
	if t != nil {
		text += "\r"
	}
	fmt.Fprintln(out, text)
}

// size is in characters; 0 when it is not known.
func (t *terminal) size() (rows, columns int) {
	columns, rows, err := term.GetSize(t.fd)
	if err != nil {
		return 0, 0
	}
	return rows, columns
}

// lineEnds are the keys after which a new line begins: Enter, and Ctrl-C, Ctrl-D and Ctrl-U, which give the last one up.
const lineEnds = "\r\n\x03\x04\x15"

// escapes finds what is meant for us in what is typed at a terminal: a ~ at the start of a line, and the key after it.
type escapes struct {
	lineStart, tilde bool
	help             func()
}

// take gives what is for the machine, up to the wish to leave.
func (e *escapes) take(p []byte) (text []byte, leave bool) {
	for _, b := range p {
		begun := e.tilde
		e.tilde = false
		switch {
		case begun && b == '.':
			return text, true
		case begun && b == '?':
			e.help()
			continue
		case begun && b != '~':
			text = append(text, '~')
		case !begun && b == '~' && e.lineStart:
			e.tilde = true
			continue
		}
		text = append(text, b)
		e.lineStart = strings.IndexByte(lineEnds, b) >= 0
	}
	return text, false
}

// enters makes the line ends of a file the Enter key. cr is whether the last byte before p was one.
func enters(p []byte, cr *bool) (text []byte) {
	for _, b := range p {
		if b == '\n' && !*cr {
			text = append(text, '\r')
		}
		if *cr = b == '\r'; b != '\n' {
			text = append(text, b)
		}
	}
	return text
}

// quiet waits for a while in which nothing happens.
type quiet struct {
	mu    sync.Mutex // protects timer
	timer *time.Timer
}

// passed is sent one value when nothing has happened for d, once; nil, and so nothing ever, when d is 0.
func (q *quiet) passed(d time.Duration) <-chan time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d == 0 {
		return nil
	}
	q.timer = time.NewTimer(d)
	return q.timer.C
}

// disturb begins the while anew.
func (q *quiet) disturb(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Reset(d)
	}
}
