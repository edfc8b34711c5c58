package virtual

import (
	"context"
	"sync"
	"time"
)

// Fake is a Hypervisor without a guest: power is a variable. The zero value switches at once.
// Its fields must be set before the machine runs.
type Fake struct {
	OnPowerOn  func(target string) // called on each start (also after Reboot), with "Pxe", "Hdd" or "Cd", before the BMC says On; may be nil
	OnPowerOff func()              // called when a power-on period ends for good or for a restart; may be nil
	StartDelay time.Duration       // how long PoweringOn lasts
	StopDelay  time.Duration       // how long PoweringOff lasts
	Deaf       bool                // the guest ignores the ACPI power key
	StartError error               // every start fails with it

	mu    sync.Mutex // protects what follows
	guest *fakeGuest
	boots []Boot
	nmis  int
	media [][2]string // drive and file of each change under a running guest
}

// Start implements Hypervisor.
func (f *Fake) Start(ctx context.Context, boot Boot) (Guest, error) {
	if err := pause(ctx, f.StartDelay); err != nil {
		return nil, err
	}
	if f.StartError != nil {
		return nil, f.StartError
	}
	g := &fakeGuest{fake: f, done: make(chan struct{})}
	f.mu.Lock()
	f.guest = g
	f.boots = append(f.boots, boot)
	f.mu.Unlock()
	if f.OnPowerOn != nil {
		f.OnPowerOn(string(boot.Target))
	}
	return g, nil
}

// Boots lists every start so far, oldest first.
func (f *Fake) Boots() []Boot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Boot(nil), f.boots...)
}

// NMIs counts the interrupts raised.
func (f *Fake) NMIs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nmis
}

// Reboot is the guest restarting itself; nothing happens while off.
func (f *Fake) Reboot() { f.end(End{Kind: EndReset}) }

// Shutdown is the guest switching itself off; nothing happens while off.
func (f *Fake) Shutdown() { f.end(End{Kind: EndPowerOff}) }

// Die is the hardware failing under the guest, for the reason given.
func (f *Fake) Die(err error) { f.end(End{Kind: EndDied, Err: err}) }

func (f *Fake) end(e End) {
	f.mu.Lock()
	g := f.guest
	f.mu.Unlock()
	if g != nil {
		g.finish(e)
	}
}

type fakeGuest struct {
	fake *Fake
	once sync.Once
	done chan struct{}
	how  End
}

func (g *fakeGuest) finish(e End) {
	g.once.Do(func() {
		g.how = e
		if g.fake.OnPowerOff != nil {
			g.fake.OnPowerOff()
		}
		close(g.done)
	})
}

func (g *fakeGuest) Stop() {
	_ = pause(context.Background(), g.fake.StopDelay)
	g.finish(End{Kind: EndStopped})
}

func (g *fakeGuest) PowerButton() error {
	if !g.fake.Deaf {
		time.AfterFunc(g.fake.StopDelay, func() { g.finish(End{Kind: EndPowerOff}) })
	}
	return nil
}

func (g *fakeGuest) NMI() error {
	g.fake.mu.Lock()
	defer g.fake.mu.Unlock()
	g.fake.nmis++
	return nil
}

func (g *fakeGuest) SetMedium(drive int, file string) error {
	g.fake.mu.Lock()
	defer g.fake.mu.Unlock()
	g.fake.media = append(g.fake.media, [2]string{driveIDs[drive], file})
	return nil
}

func (g *fakeGuest) Done() <-chan struct{} { return g.done }
func (g *fakeGuest) End() End              { return g.how }

// pause waits d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
