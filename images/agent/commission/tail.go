package commission

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// tail keeps the last bytes that were written to it, and counts those that it let go. It is safe for concurrent use.
type tail struct {
	limit int

	mu   sync.Mutex // protects what follows
	kept []byte     // at most twice the limit
	all  int64
}

func newTail(limit int) *tail { return &tail{limit: limit} }

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all += int64(len(b))
	n := len(b)
	if len(b) > t.limit {
		b = b[len(b)-t.limit:]
	}
	if t.kept = append(t.kept, b...); len(t.kept) > 2*t.limit {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.limit:]...)
	}
	return n, nil
}

func (t *tail) line(format string, args ...any) {
	fmt.Fprintln(t, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// String is what is kept, as valid UTF-8 without control characters, with a first line that counts what went before.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, room := t.kept, t.limit
	head := ""
	if t.all > int64(room) {
		head = fmt.Sprintf("(%d bytes before this were not kept)\n", t.all-int64(room))
		room -= len(head)
	}
	if len(b) > room {
		b = b[len(b)-room:]
	}
	return head + printable(string(b))
}

// printable drops what is no text: broken UTF-8 and control characters but newline and tab.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || c < ' ' && c != '\n' && c != '\t' || c >= 0x7f && c < 0xa0 {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, ""))
}

// clip makes a text fit for a field of a result: one line, bounded.
func clip(s string, n int) string {
	s = strings.TrimSpace(strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(s)))
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}
