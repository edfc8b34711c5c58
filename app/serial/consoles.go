package serial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Time limits.
const (
	OpenTime = 90 * time.Second // to open, taking over included: a BMC that gives up another's session late takes half a minute
	IdleTime = time.Hour        // longest pause in which nothing is typed and nothing printed
	freeTime = 20 * time.Second // for a driver to let go of a console; ipmitool is given ten seconds
)

// Config is what consoles need. Every field is required unless said.
type Config struct {
	// Check tells why a machine has no console, nil when it has one. It asks no BMC.
	Check func(m *app.Machine) error
	// Open opens a machine's console. The end of ctx ends the opening, and may end what was opened.
	Open   func(ctx context.Context, m *app.Machine) (io.ReadWriteCloser, error)
	Record func(app.Event)
	Line   func(machineID, text string) // takes each line that a machine prints, hostile as it is
	Now    func() time.Time

	OpenTime, IdleTime time.Duration // default OpenTime, IdleTime
}

// Person is who has a console open.
type Person struct {
	Name  string // of the user: what other people are told
	Actor string // under which events remember them, such as "token:cli"
}

// Consoles are the open consoles. It is safe for concurrent use.
type Consoles struct {
	cfg Config

	mu       sync.Mutex // protects what follows
	held     map[string]*Session
	stopping bool
}

// New makes consoles, none of which is open.
func New(cfg Config) *Consoles {
	if cfg.OpenTime == 0 {
		cfg.OpenTime = OpenTime
	}
	if cfg.IdleTime == 0 {
		cfg.IdleTime = IdleTime
	}
	return &Consoles{cfg: cfg, held: map[string]*Session{}}
}

// Run ends every console when ctx ends, and opens no more. It returns when they are free.
func (c *Consoles) Run(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	c.stopping = true
	var all []*Session
	for _, s := range c.held {
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		s.End(stopping())
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTime)
	defer cancel()
	for _, s := range all {
		s.wait(last)
	}
	return nil
}

func stopping() error {
	return app.Errorf(app.Unavailable, "stopping", "bcd is being stopped").Do("open the console again when it has come back").Retryable()
}

// Holder is the name of who has a machine's console open, and since when; "" nobody.
func (c *Consoles) Holder(machineID string) (name string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.held[machineID]; s != nil {
		return s.who.Name, s.since
	}
	return "", time.Time{}
}

// Check tells why a machine has no console, nil when it has one.
func (c *Consoles) Check(m *app.Machine) error { return c.cfg.Check(m) }

// End ends a machine's console, if it is open, and tells its holder why. It returns when the console is free, or its driver
// does not let go of it in time.
func (c *Consoles) End(ctx context.Context, machineID string, why *app.Error) {
	c.mu.Lock()
	s := c.held[machineID]
	c.mu.Unlock()
	if s == nil {
		return
	}
	s.End(why)
	last, cancel := context.WithTimeout(ctx, freeTime)
	defer cancel()
	s.wait(last)
}

// Open opens a machine's console for a person, until it is closed or ctx ends. While another has it open the error is a
// Conflict, unless take ends that one first.
func (c *Consoles) Open(ctx context.Context, who Person, m *app.Machine, take bool) (*Session, error) {
	if err := c.cfg.Check(m); err != nil {
		return nil, err
	}
	s := newSession(ctx, c, who, m)
	late := time.AfterFunc(c.cfg.OpenTime, func() { s.End(tooLate(m, c.cfg.OpenTime)) })
	defer late.Stop()
	from, err := c.claim(s, take)
	if err != nil {
		s.cancel(nil)
		return nil, s.why(err)
	}
	line, err := c.cfg.Open(s.ctx, m)
	if err == nil && s.ctx.Err() != nil { // ended as it opened
		err = errors.Join(context.Cause(s.ctx), line.Close())
	}
	if err != nil {
		err = s.why(err)
		c.release(s)
		return nil, err
	}
	s.begin(line)
	switch from {
	case "":
		s.record("console.opened", "info", "%s opened the serial console", who.Name)
	default:
		s.record("console.taken", "warn", "%s took the serial console over from %s", who.Name, from)
	}
	return s, nil
}

func tooLate(m *app.Machine, limit time.Duration) error {
	return app.Errorf(app.Timeout, "console-late", "the console of %s did not open within %s", m.Name, limit).
		Do("see whether its BMC answers: bcd machine query %s power.getPower", m.Name).Retryable()
}

// claim makes s the holder of its machine's console. from is whose it was taken from.
func (c *Consoles) claim(s *Session, take bool) (from string, err error) {
	for {
		other, err := c.hold(s)
		switch {
		case err != nil:
			return "", err
		case other == nil:
			return from, nil
		case !take:
			return "", taken(other, s.who)
		}
		from = other.who.Name
		other.End(app.Errorf(app.Conflict, "console-taken-over", "%s took the console of %s over", s.who.Name, s.m.Name).
			Do("ask for it back, or take it: bcd machine console %s --take", s.m.Name))
		if !other.wait(s.ctx) {
			return "", context.Cause(s.ctx)
		}
	}
}

// hold gives the holder of the machine's console, nil when s has become it.
func (c *Consoles) hold(s *Session) (*Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return nil, stopping()
	}
	if other := c.held[s.m.ID]; other != nil {
		return other, nil
	}
	c.held[s.m.ID] = s
	return nil, nil
}

func taken(by *Session, asks Person) error {
	who, first := by.who.Name+" has", "wait until it is closed"
	if by.who.Name == asks.Name {
		who, first = "you already have", "leave it there"
	}
	return app.Errorf(app.Conflict, "console-taken", "%s the console of %s open, since %s", who, by.m.Name, by.since.UTC().Format(time.RFC3339)).
		Do("%s, or take it over: bcd machine console %s --take", first, by.m.Name)
}

// release makes the console free.
func (c *Consoles) release(s *Session) {
	c.mu.Lock()
	delete(c.held, s.m.ID)
	c.mu.Unlock()
	s.cancel(nil)
	close(s.free)
}

func (s *Session) record(kind, level, format string, args ...any) {
	s.of.cfg.Record(app.Event{Time: s.of.cfg.Now().UTC(), Kind: kind, Level: level, MachineID: s.m.ID, Actor: s.who.Actor,
		Message: s.m.Name + ": " + fmt.Sprintf(format, args...)})
}
