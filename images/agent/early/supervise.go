package early

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// Between two starts of a program that ends by itself.
const (
	firstPause = time.Second
	longest    = 30 * time.Second
	lived      = time.Minute // a program that ran this long starts over with the first pause
)

// program is something PID 1 keeps running.
type program struct {
	name string // for the log
	exe  string
	argv []string
	attr func() (*os.ProcAttr, func(), error) // and what to close after the start
}

// keep runs p again and again until ctx ends, then asks it to stop and, after grace, makes it.
func (c *children) keep(ctx context.Context, p program, grace time.Duration, log *slog.Logger) {
	pause := firstPause
	for {
		began := time.Now()
		if !c.once(ctx, p, grace, log) {
			return
		}
		if time.Since(began) > lived {
			pause = firstPause
		}
		log.Info("starting it again", "program", p.name, "in", pause)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		pause = min(pause*2, longest)
	}
}

// once runs p to its end and reports whether it should run again.
func (c *children) once(ctx context.Context, p program, grace time.Duration, log *slog.Logger) bool {
	attr, release, err := p.attr()
	if err != nil {
		log.Warn("cannot start", "program", p.name, "error", err)
		return ctx.Err() == nil
	}
	proc, ended, err := c.start(p.exe, p.argv, attr)
	release()
	if err != nil {
		log.Warn("cannot start", "program", p.name, "error", err)
		return ctx.Err() == nil
	}
	defer func() { _ = proc.Release() }() // it ended, or is PID 1's to reap
	select {
	case ws := <-ended:
		log.Warn("program ended", "program", p.name, "end", endOf(ws))
		return ctx.Err() == nil
	case <-ctx.Done():
	}
	_ = proc.Signal(syscall.SIGTERM) // it may have ended meanwhile
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		_ = proc.Signal(syscall.SIGKILL)
	}
	return false
}
