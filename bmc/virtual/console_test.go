package virtual

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestConsoleLines(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []string
		want []string
	}{
		{"plain", []string{"one\r\ntwo\r\n"}, []string{"one", "two"}},
		{"in pieces", []string{"o", "n", "e\r", "\ntw", "o\n"}, []string{"one", "two"}},
		{"colour and cursor", []string{"\x1b[2J\x1b[01;01H\x1b[0m\x1b[37m\x1b[40mBdsDxe: loading\n"}, []string{"BdsDxe: loading"}},
		{"reset and charset", []string{"\x1bc\x1b(Blogin\x07\n"}, []string{"login"}},
		{"not UTF-8", []string{"a\xffb\n"}, []string{"a\ufffdb"}},
		{"without end", []string{strings.Repeat("x", maxLine+1) + "\n"}, []string{strings.Repeat("x", maxLine), "x"}},
	} {
		var got []string
		c, err := newConsole("", func(l Line) { got = append(got, l.Text) })
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range tc.in {
			c.print([]byte(s))
		}
		if strings.Join(got, "|") != strings.Join(tc.want, "|") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A prompt has no line end and is seen all the same; only what comes after Watch counts.
func TestConsoleWatchSeesAPrompt(t *testing.T) {
	c, _ := newConsole("", nil)
	c.print([]byte("old login: \n"))
	w := c.Watch(regexp.MustCompile(`login: $`))
	c.print([]byte("node-1 lo"))
	c.print([]byte("gin: "))
	if l, err := w.Wait(t.Context()); err != nil || l.Text != "node-1 login: " {
		t.Errorf("%q, %v", l.Text, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Watch(regexp.MustCompile("never")).Wait(ctx); err == nil {
		t.Error("a wait that was given up found something")
	}
	if len(c.watches) != 0 {
		t.Errorf("%d watches left", len(c.watches))
	}
}

func TestConsoleLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	c, err := newConsole(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 40 {
		c.print(block)
	}
	c.close()
	for _, name := range []string{consoleLog, consoleLog + ".1"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() > maxConsoleLog {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if n := len(c.Tail()); n != tailBytes {
		t.Errorf("tail of %d bytes", n)
	}
}

// TestConsoleSocket types through the socket and refuses more terminals than there may be.
func TestConsoleSocket(t *testing.T) {
	c, err := newConsole(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	guest, keys := net.Pipe()
	defer guest.Close()
	c.powerOn(keys)
	var conns []net.Conn
	for range maxAttached {
		conn, err := net.Dial("unix", c.SocketPath())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, conn := range conns { // each answer shows that the terminal before it was taken in
		if _, err := conn.Write([]byte("k")); err != nil {
			t.Fatal(err)
		}
		_ = guest.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(guest, make([]byte, 1)); err != nil {
			t.Fatalf("a key was lost: %v", err)
		}
	}
	more, err := net.Dial("unix", c.SocketPath())
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	_ = more.SetReadDeadline(time.Now().Add(patience))
	if _, err := more.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("one terminal too many: %v", err)
	}
	c.powerOff()
	if n, err := c.Write([]byte("lost")); n != 4 || err != nil {
		t.Errorf("typing without power: %d, %v", n, err)
	}
}

func FuzzConsole(f *testing.F) {
	f.Add([]byte("a\x1b[1mb\r\n\xff\x00"), 3)
	f.Add([]byte("\x1b"), 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, pieces splitter
		want := whole.add(b)
		n := max(0, min(cut, len(b)))
		got := append(pieces.add(b[:n]), pieces.add(b[n:])...)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("cut at %d: %q, want %q", n, got, want)
		}
		for _, l := range want {
			if strings.ContainsAny(l, "\x1b\r\x00\n\x7f") {
				t.Errorf("control characters in %q", l)
			}
		}
	})
}
