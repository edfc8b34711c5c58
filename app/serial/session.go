package serial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/app"
)

// maxLine bounds what is held of a line that has no end yet, in bytes. Escape sequences may be most of it.
const maxLine = 4096

// Session is one console in a person's hands. One goroutine may read while others write, end and close it.
type Session struct {
	of     *Consoles
	m      *app.Machine
	who    Person
	since  time.Time
	ctx    context.Context // its cause is why the console ends
	cancel context.CancelCauseFunc
	line   io.ReadWriteCloser // set by begin, before anybody else sees it
	idle   *time.Timer

	typed, printed atomic.Int64 // bytes
	closing        sync.Once
	free           chan struct{} // closed when the machine's console is free

	mu      sync.Mutex // protects what follows
	partial []byte     // of the line being printed
}

func newSession(ctx context.Context, of *Consoles, who Person, m *app.Machine) *Session {
	s := &Session{of: of, m: m, who: who, since: of.cfg.Now(), free: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// begin starts the life of what was opened.
func (s *Session) begin(line io.ReadWriteCloser) {
	s.line = line
	s.idle = time.AfterFunc(s.of.cfg.IdleTime, func() {
		s.End(app.Errorf(app.Timeout, "console-idle", "nothing was typed or printed on the console of %s for %s", s.m.Name, app.Took(s.of.cfg.IdleTime)).
			Do("open it again: bcd machine console %s", s.m.Name))
	})
	context.AfterFunc(s.ctx, func() { _ = s.Close() })
}

// Since is when the console was asked for.
func (s *Session) Since() time.Time { return s.since }

// Done is closed when the console has ended and the machine's is free again.
func (s *Session) Done() <-chan struct{} { return s.free }

// ErrLeft ends a console whose person has left it.
var ErrLeft = errors.New("the console was left")

// End ends the console. Why, ErrLeft or an *app.Error, is what Read then fails with; of several the first counts.
func (s *Session) End(why error) { s.cancel(why) }

// wait returns true when the console is free, false when ctx ends before.
func (s *Session) wait(ctx context.Context) bool {
	select {
	case <-s.free:
		return true
	case <-ctx.Done():
		return false
	}
}

// why gives what this appliance decided before what the driver made of it.
func (s *Session) why(err error) error {
	cause := context.Cause(s.ctx)
	if _, ok := app.AsError(cause); ok || errors.Is(cause, ErrLeft) {
		return cause
	}
	return err
}

// Read gives what the machine prints. It fails with io.EOF when its driver ended the console, and with what was given to End
// when this appliance did.
func (s *Session) Read(p []byte) (int, error) {
	n, err := s.line.Read(p)
	s.moved(&s.printed, n)
	s.lines(p[:n])
	if err != nil {
		err = s.why(err)
	}
	return n, err
}

// Write types to the machine.
func (s *Session) Write(p []byte) (int, error) {
	n, err := s.line.Write(p)
	s.moved(&s.typed, n)
	return n, err
}

func (s *Session) moved(count *atomic.Int64, n int) {
	if n > 0 && s.ctx.Err() == nil {
		count.Add(int64(n))
		s.idle.Reset(s.of.cfg.IdleTime)
	}
}

// lines cuts what was printed into lines. Of one that has no end only the beginning is kept.
func (s *Session) lines(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		s.partial = append(s.partial, line[:min(len(line), maxLine-len(s.partial))]...)
		if p = rest; whole {
			s.flush()
		}
	}
}

// flush gives away the line so far. mu must be held.
func (s *Session) flush() {
	if len(s.partial) > 0 {
		s.of.cfg.Line(s.m.ID, string(s.partial))
		s.partial = s.partial[:0]
	}
}

// Close ends the console and returns when the machine's is free again.
func (s *Session) Close() (err error) {
	s.closing.Do(func() {
		s.idle.Stop()
		err = s.line.Close()
		s.mu.Lock()
		s.flush() // a prompt ends no line
		s.mu.Unlock()
		s.recordEnd()
		s.of.release(s)
	})
	<-s.free
	return err
}

func (s *Session) recordEnd() {
	passed := fmt.Sprintf("after %s, %d bytes typed, %d printed", app.Took(s.of.cfg.Now().Sub(s.since)), s.typed.Load(), s.printed.Load())
	cause := context.Cause(s.ctx)
	if cause == nil || errors.Is(cause, ErrLeft) {
		s.record("console.closed", "info", "%s closed the serial console %s", s.who.Name, passed)
		return
	}
	why := "the connection broke off"
	if e, ok := app.AsError(cause); ok {
		why = e.Message
	}
	s.record("console.ended", "warn", "the serial console that %s had open ended %s: %s", s.who.Name, passed, why)
}
