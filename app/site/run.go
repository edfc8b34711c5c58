package site

import (
	"context"
	"errors"
	"fmt"
)

// part is a component: run returns when its context ends, or fails.
type part struct {
	name string
	run  func(ctx context.Context) error
	up   <-chan struct{} // closed once those that start later may rely on it; nil: at once
}

func (s *Site) add(name string, run func(context.Context) error) {
	s.parts = append(s.parts, part{name: name, run: run})
}

// Run serves until ctx ends or a component fails.
func (s *Site) Run(ctx context.Context) error { return s.RunReady(ctx, func() {}) }

// RunReady is Run that tells when the components were started.
func (s *Site) RunReady(ctx context.Context, ready func()) error {
	if err := s.greet(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	failed := make(chan error, len(s.parts))
	base := context.WithoutCancel(ctx)
	var up []running
	var err error
	for _, p := range s.parts {
		up = append(up, start(base, p, failed))
		if err = p.await(ctx, failed); err != nil || ctx.Err() != nil {
			break
		}
	}
	if err == nil && ctx.Err() == nil {
		ready()
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	if err != nil {
		s.log.Error("a component failed; stopping", "error", err)
	} else {
		s.log.Info("stopping")
	}
	for i := len(up) - 1; i >= 0; i-- {
		up[i].stop()
		<-up[i].done
	}
	return errors.Join(err, s.close())
}

// running is a component with its end.
type running struct {
	stop context.CancelFunc
	done chan struct{}
}

func start(ctx context.Context, p part, failed chan<- error) running {
	ctx, stop := context.WithCancel(ctx)
	r := running{stop, make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := p.run(ctx); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("running %s: %w", p.name, err)
		}
	}()
	return r
}

// await waits until the component is up, one fails, or ctx ends.
func (p part) await(ctx context.Context, failed <-chan error) error {
	if p.up == nil {
		return nil
	}
	select {
	case <-p.up:
	case <-ctx.Done():
	case err := <-failed:
		return err
	}
	return nil
}
