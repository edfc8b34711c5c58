package figures

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/bcd/app/lab"
)

// idleTime is how long an appliance idles before it is measured.
const idleTime = 30 * time.Second

// withAppliance runs an appliance on an empty network for as long as use lasts.
func (s *session) withAppliance(ctx context.Context, seed func(dataDir string) error, use func(*appliance) error) (err error) {
	n, err := lab.NewNetwork(lab.NetworkConfig{Name: namespace, Taps: 1, Log: s.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	a, err := s.start(ctx, seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	return use(a)
}

// idle measures an appliance that has nothing to do.
func (s *session) idle(ctx context.Context) error {
	return s.withAppliance(ctx, nil, func(a *appliance) error {
		s.say("rss_idle_bytes: letting an appliance idle for %s", idleTime)
		select {
		case <-time.After(idleTime):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		rss, err := a.memory("VmRSS")
		if err != nil {
			return err
		}
		anon, err := a.memory("RssAnon")
		if err != nil {
			return err
		}
		s.note("rss_idle_bytes: VmRSS of `bcd site`, a process of its own, %s after the first login, without machines; %d bytes of it are private, the others pages of the program file", idleTime, anon)
		s.put("rss_idle_bytes", float64(rss), 0)
		return nil
	})
}
