package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/serial"
)

// rig is consoles over machines that print and read through pipes.
type rig struct {
	*serial.Consoles
	t    *testing.T
	open func(ctx context.Context) error // before a console opens; nil: at once
	stop func()

	mu     sync.Mutex
	events []app.Event
	lines  []string
	lets   int // consoles let go of
}

// line is the appliance's side of a console whose machine answers each byte with itself.
type line struct {
	*io.PipeReader
	w     *io.PipeWriter
	close func()
}

func (l *line) Write(p []byte) (int, error) { return l.w.Write(p) }
func (l *line) Close() error                { l.close(); return nil }

func newRig(t *testing.T) *rig {
	r := &rig{t: t}
	r.Consoles = serial.New(serial.Config{
		Check:  func(*app.Machine) error { return nil },
		Record: func(e app.Event) { r.mu.Lock(); defer r.mu.Unlock(); r.events = append(r.events, e) },
		Line:   func(m, text string) { r.mu.Lock(); defer r.mu.Unlock(); r.lines = append(r.lines, m+" "+text) },
		Now:    time.Now,
		Open:   r.dial,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) dial(ctx context.Context, _ *app.Machine) (io.ReadWriteCloser, error) {
	if r.open != nil {
		if err := r.open(ctx); err != nil {
			return nil, err
		}
	}
	out, in := io.Pipe()
	return &line{out, in, sync.OnceFunc(func() {
		_ = out.Close()
		_ = in.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lets++
	})}, nil
}

func (r *rig) must(actor string, take bool) *serial.Session {
	r.t.Helper()
	s, err := r.Open(r.t.Context(), person(actor), node, take)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// story is what was recorded, without the figures.
func (r *rig) story() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.MachineID != node.ID || e.Time.IsZero() {
			r.t.Errorf("recorded %+v", e)
		}
		out = append(out, e.Kind+" "+e.Actor)
	}
	return out
}

func (r *rig) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[len(r.events)-1].Message
}

var node = &app.Machine{ID: "m-1", Name: "node-1"}

func person(name string) serial.Person { return serial.Person{Name: name, Actor: "token:" + name} }

func reason(err error) string {
	e, _ := app.AsError(err)
	if e == nil {
		return fmt.Sprint(err)
	}
	return e.Reason
}

// echo types text and reads it back.
func echo(t *testing.T, s *serial.Session, text string) {
	t.Helper()
	go func() { _, _ = io.WriteString(s, text) }()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(s, b); err != nil || string(b) != text {
		t.Errorf("read %q, %v", b, err)
	}
}

func inBubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		f(t, r)
	})
}

func TestOneConsoleFromOpeningToEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.must("alice", false)
		if who, since := r.Holder(node.ID); who != "alice" || !since.Equal(s.Since()) {
			t.Errorf("held by %q since %v", who, since)
		}
		echo(t, s, "GRUB\r\n\x1b[2J\r\nlog")
		echo(t, s, "in: ")
		time.Sleep(90 * time.Second)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil { // it is no matter how often
			t.Error(err)
		}
		if who, _ := r.Holder(node.ID); who != "" || r.lets != 1 {
			t.Errorf("still held by %q, let go of %d times", who, r.lets)
		}
		if got := fmt.Sprintf("%q", r.lines); got != `["m-1 GRUB\r" "m-1 \x1b[2J\r" "m-1 login: "]` {
			t.Errorf("lines %s", got)
		}
		if got := fmt.Sprint(r.story()); got != "[console.opened token:alice console.closed token:alice]" {
			t.Errorf("recorded %s", got)
		}
		if got := r.last(); got != "node-1: alice closed the serial console after 1 min 30 s, 19 bytes typed, 19 printed" {
			t.Errorf("recorded %q", got)
		}
	})
}

func TestOnePersonAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		first := r.must("alice", false)
		ended := make(chan error, 1)
		go func() { _, err := io.ReadAll(first); ended <- err }()
		_, err := r.Open(t.Context(), person("bob"), node, false)
		if e, _ := app.AsError(err); e == nil || e.Code != app.Conflict || e.Reason != "console-taken" || !strings.HasPrefix(e.Message, "alice has the console of node-1 open, since ") || !strings.Contains(e.WayOut, "bcd machine console node-1 --take") {
			t.Errorf("refused with %+v", err)
		}
		if _, err := r.Open(t.Context(), person("alice"), node, false); !strings.HasPrefix(err.Error(), "you already have") {
			t.Errorf("one's own: %v", err)
		}
		second := r.must("bob", true)
		if err := <-ended; reason(err) != "console-taken-over" || !strings.Contains(err.Error(), "bob took the console of node-1 over") {
			t.Errorf("alice is told %v", err)
		}
		if _, err := io.WriteString(first, "x"); err == nil {
			t.Error("she still types")
		}
		echo(t, second, "b")
		_ = second.Close()
		if got := fmt.Sprint(r.story()); got != "[console.opened token:alice console.ended token:alice console.taken token:bob console.closed token:bob]" {
			t.Errorf("recorded %s", got)
		}
	})
}

// However many take it at once, one has it in the end and each other was told.
func TestManyTakeItAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const n = 8
		told := make(chan error, n)
		for i := range n {
			go func() {
				s, err := r.Open(t.Context(), person(fmt.Sprintf("p-%d", i)), node, true)
				if err == nil {
					_, err = io.ReadAll(s)
				}
				told <- err
			}()
		}
		for range n - 1 {
			if err := <-told; reason(err) != "console-taken-over" {
				t.Errorf("told %v", err)
			}
		}
		synctest.Wait()
		if who, _ := r.Holder(node.ID); who == "" {
			t.Error("nobody has it")
		}
		r.stop()
		if err := <-told; reason(err) != "stopping" {
			t.Errorf("told %v", err)
		}
	})
}

func TestWhatEndsAConsole(t *testing.T) {
	for want, end := range map[string]func(r *rig, s *serial.Session, leave func()){
		"machine-leaves": func(r *rig, _ *serial.Session, _ func()) {
			r.End(r.t.Context(), node.ID, app.Errorf(app.Conflict, "machine-leaves", "root asked to delete node-1"))
		},
		"stopping":                      func(r *rig, _ *serial.Session, _ func()) { r.stop() },
		"console-idle":                  func(*rig, *serial.Session, func()) { time.Sleep(serial.IdleTime + time.Second) },
		"io: read/write on closed pipe": func(_ *rig, _ *serial.Session, leave func()) { leave() }, // the pipe's own words: nobody is there to read them
	} {
		inBubble(t, func(t *testing.T, r *rig) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			s, err := r.Open(ctx, person("alice"), node, false)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { _, err := io.ReadAll(s); ended <- err }()
			end(r, s, leave)
			if err := <-ended; reason(err) != want {
				t.Errorf("it ended with %v, want %s", err, want)
			}
			synctest.Wait()
			if got := fmt.Sprint(r.story()); got != "[console.opened token:alice console.ended token:alice]" {
				t.Errorf("%s: recorded %s", want, got)
			}
			if who, _ := r.Holder(node.ID); who != "" || r.lets != 1 {
				t.Errorf("%s: held by %q, let go of %d times", want, who, r.lets)
			}
		})
	}
}

// Who leaves is not told why, and is said to have left even when something else would have ended it next.
func TestLeavingAConsole(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.must("alice", false)
		s.End(serial.ErrLeft)
		s.End(app.Errorf(app.Conflict, "machine-leaves", "gone"))
		if _, err := io.ReadAll(s); !errors.Is(err, serial.ErrLeft) {
			t.Errorf("it ended with %v", err)
		}
		<-s.Done()
		if got := r.story()[1]; got != "console.closed token:alice" {
			t.Errorf("recorded %s", got)
		}
	})
}

// A machine that prints, or a person who types, is not idle.
func TestAConsoleInUseIsNotIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.must("alice", false)
		for range 5 {
			time.Sleep(serial.IdleTime - time.Minute)
			echo(t, s, ".")
		}
		_ = s.Close()
		if got := r.story()[1]; got != "console.closed token:alice" {
			t.Errorf("recorded %s", got)
		}
	})
}

func TestAConsoleThatDoesNotOpen(t *testing.T) {
	for want, open := range map[string]func(context.Context) error{
		"console-late": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"busy":         func(context.Context) error { return app.Errorf(app.Unavailable, "busy", "it is in use") },
		"machine-leaves": func(ctx context.Context) error {
			<-ctx.Done()
			return nil // it opened after all
		},
	} {
		inBubble(t, func(t *testing.T, r *rig) {
			r.open = open
			if want == "machine-leaves" {
				time.AfterFunc(time.Second, func() { r.End(t.Context(), node.ID, app.Errorf(app.Conflict, want, "gone")) })
			}
			if _, err := r.Open(t.Context(), person("alice"), node, false); reason(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
			if who, _ := r.Holder(node.ID); who != "" || len(r.story()) != 0 {
				t.Errorf("%s: held by %q, recorded %v", want, who, r.story())
			}
			r.open = nil
			_ = r.must("bob", false).Close()
		})
	}
}

// A driver that never lets go stops neither a deletion nor the appliance.
func TestADriverThatDoesNotLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		c := serial.New(serial.Config{
			Check: func(*app.Machine) error { return nil }, Record: func(app.Event) {}, Line: func(string, string) {}, Now: time.Now,
			Open: func(context.Context, *app.Machine) (io.ReadWriteCloser, error) {
				out, in := io.Pipe()
				return &line{out, in, func() { <-stuck; _ = out.Close() }}, nil
			},
		})
		if _, err := c.Open(t.Context(), person("alice"), node, false); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		c.End(t.Context(), node.ID, app.Errorf(app.Conflict, "machine-leaves", "gone"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("took %v", took)
		}
		if _, err := c.Open(t.Context(), person("bob"), node, true); reason(err) != "stopping" {
			t.Errorf("opened while stopping: %v", err)
		}
		close(stuck)
	})
}

func TestAMachineWithoutAConsole(t *testing.T) {
	c := serial.New(serial.Config{Check: func(*app.Machine) error { return app.Errorf(app.Unsupported, "no-console", "none") }})
	if _, err := c.Open(t.Context(), person("alice"), node, false); reason(err) != "no-console" {
		t.Error(err)
	}
}

// What is held of a line without end is bounded.
func TestALineWithoutEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.must("alice", false)
		for range 4 {
			echo(t, s, strings.Repeat("x", 4000))
		}
		echo(t, s, "\nnext\n")
		_ = s.Close()
		if len(r.lines) != 2 || len(r.lines[0]) > 5000 || r.lines[1] != "m-1 next" {
			t.Errorf("%d lines, the first of %d bytes", len(r.lines), len(r.lines[0]))
		}
	})
}

// The machine's bytes come through as they are, however they are cut; the lines say the same.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n"), byte(3))
	f.Add([]byte("\x00\xff\n"), byte(1))
	f.Fuzz(func(t *testing.T, text []byte, cut byte) {
		var lines []string
		src := &chunks{text: text, n: 1 + int(cut)%7}
		c := serial.New(serial.Config{Check: func(*app.Machine) error { return nil }, Record: func(app.Event) {}, Now: time.Now,
			Line: func(_, text string) { lines = append(lines, text) },
			Open: func(context.Context, *app.Machine) (io.ReadWriteCloser, error) { return src, nil }})
		s, err := c.Open(t.Context(), person("a"), node, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(s)
		if err != nil || string(got) != string(text) {
			t.Fatalf("read %q of %q, %v", got, text, err)
		}
		_ = s.Close()
		want := slices.DeleteFunc(strings.Split(string(text), "\n"), func(s string) bool { return s == "" })
		if len(text) < 4000 && !slices.Equal(lines, want) {
			t.Fatalf("lines %q of %q", lines, text)
		}
	})
}

// chunks gives text n bytes at a time.
type chunks struct {
	text []byte
	n    int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.text)
	c.text = c.text[n:]
	return n, nil
}

func (*chunks) Write([]byte) (int, error) { return 0, errors.New("it only prints") }
func (*chunks) Close() error              { return nil }
