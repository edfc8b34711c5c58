package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Limits of forwarded log lines.
const (
	maxLines     = 1000 // waiting
	maxLineBytes = 1024
	maxBatch     = 100 // per report
	linesEvery   = time.Second
)

// Lines is a queue of log lines for the appliance. When it is full the oldest line goes, and the next report says how many
// went. It is safe for concurrent use.
type Lines struct {
	mu      sync.Mutex // protects lines and dropped
	lines   []string
	dropped int
	fresh   chan struct{}
}

// NewLines makes an empty queue.
func NewLines() *Lines { return &Lines{fresh: make(chan struct{}, 1)} }

// Handler gives a slog handler that writes to next and queues each record of level info and above.
func (l *Lines) Handler(next slog.Handler) slog.Handler {
	strip := func(groups []string, at slog.Attr) slog.Attr {
		if len(groups) == 0 && at.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return at
	}
	return &fanout{next: next, queue: slog.NewTextHandler(lineWriter{l}, &slog.HandlerOptions{ReplaceAttr: strip})}
}

// add queues one line.
func (l *Lines) add(s string) {
	l.mu.Lock()
	if len(l.lines) >= maxLines {
		l.lines = l.lines[1:]
		l.dropped++
	}
	l.lines = append(l.lines, clip(s, maxLineBytes))
	l.mu.Unlock()
	select {
	case l.fresh <- struct{}{}:
	default:
	}
}

// take removes up to maxBatch lines, with a first line that counts the dropped ones.
func (l *Lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	if l.dropped > 0 {
		out = append(out, fmt.Sprintf("level=WARN msg=\"%d older log lines were dropped\"", l.dropped))
		l.dropped = 0
	}
	n := min(len(l.lines), maxBatch-len(out))
	out = append(out, l.lines[:n]...)
	l.lines = l.lines[n:]
	return out
}

// putBack returns lines that could not be sent to the front, as far as there is room.
func (l *Lines) putBack(lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := min(len(lines), maxLines-len(l.lines))
	l.dropped += len(lines) - keep
	l.lines = append(append([]string{}, lines[len(lines)-keep:]...), l.lines...)
}

// forward sends queued lines, a batch a second, until ctx ends.
func (a *Agent) forward(ctx context.Context) {
	var b backoff
	for {
		lines := a.cfg.Lines.take()
		if len(lines) == 0 {
			select {
			case <-a.cfg.Lines.fresh:
				continue
			case <-ctx.Done():
				return
			}
		}
		pause := linesEvery
		err := a.client.Report(ctx, agentv1.PathLog, a.ses.Secret, agentv1.LogReport{SessionID: a.ses.SessionID, Lines: lines})
		if err != nil {
			a.cfg.Lines.putBack(lines)
			pause = max(pause, b.next())
		} else {
			b.reset()
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

// lineWriter queues what a slog.TextHandler writes: one record, one Write.
type lineWriter struct{ l *Lines }

func (w lineWriter) Write(p []byte) (int, error) {
	w.l.add(string(bytes.TrimRight(p, "\n")))
	return len(p), nil
}

// fanout hands each record to two handlers.
type fanout struct{ next, queue slog.Handler }

func (f *fanout) Enabled(ctx context.Context, l slog.Level) bool {
	return f.next.Enabled(ctx, l) || f.queue.Enabled(ctx, l)
}

func (f *fanout) Handle(ctx context.Context, r slog.Record) error {
	if f.queue.Enabled(ctx, r.Level) {
		_ = f.queue.Handle(ctx, r) // lineWriter never fails
	}
	if !f.next.Enabled(ctx, r.Level) {
		return nil
	}
	return f.next.Handle(ctx, r)
}

func (f *fanout) WithAttrs(a []slog.Attr) slog.Handler {
	return &fanout{next: f.next.WithAttrs(a), queue: f.queue.WithAttrs(a)}
}

func (f *fanout) WithGroup(n string) slog.Handler {
	return &fanout{next: f.next.WithGroup(n), queue: f.queue.WithGroup(n)}
}
