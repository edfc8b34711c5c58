package virtual

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Machine is a virtual machine and its BMC.
type Machine struct {
	cfg      Config
	hv       Hypervisor
	console  *Console
	cert     tls.Certificate
	listener net.Listener
	sessions *sessions
	requests chan resetType // to the power loop
	changed  chan struct{}  // tells the power loop that a drive holds something else
	fetches  chan fetch     // to the media loop
	now      func() time.Time

	mu    sync.Mutex // protects state and files
	state state
	files []string // copies of virtual media

	closing  sync.Once
	closed   chan struct{} // closed by Close: Run ends
	started  bool          // Run was called; protected by mu
	finished chan struct{} // closed when Run has returned
}

// New makes a machine that is off, creates its missing disks, and opens its BMC's listener; Run serves it.
// The caller must call Run or Close.
func New(cfg Config) (*Machine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := createDisks(cfg.Disks); err != nil {
		return nil, err
	}
	cert, err := certificate(cfg)
	if err != nil {
		return nil, err
	}
	console, err := newConsole(cfg.Dir, cfg.OnLine)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		console.close()
		return nil, app.Errorf(app.Unavailable, "bmc-listen", "the virtual BMC of %s cannot listen on %s: %w", cfg.Name, cfg.Listen, err).
			Do("choose another address or port")
	}
	m := &Machine{
		cfg: cfg, hv: cfg.Hypervisor, console: console, cert: cert, listener: l,
		requests: make(chan resetType, 8), changed: make(chan struct{}, 1), fetches: make(chan fetch, maxFetches), now: time.Now, closed: make(chan struct{}), finished: make(chan struct{}),
		state: state{power: powerOff, boot: Override{NoTarget, Disabled, modeOf(cfg.Firmware)}, version: 1, password: cfg.Password},
	}
	m.sessions = newSessions(func() time.Time { return m.now() })
	if m.hv == nil {
		m.hv = &qemu{cfg: cfg, console: console, log: cfg.Log}
	}
	return m, nil
}

// createDisks makes the raw files that do not exist yet, sparse.
func createDisks(disks []Disk) error {
	for i, d := range disks {
		if _, err := os.Stat(d.Path); err == nil {
			continue
		} else if d.Bytes == 0 {
			return app.Invalid(fmt.Sprintf("Disks[%d].Path", i), "%s: %v", d.Path, err)
		}
		f, err := os.OpenFile(d.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("creating disk %s: %w", d.Path, err)
		}
		if err := errors.Join(f.Truncate(d.Bytes), f.Close()); err != nil {
			return fmt.Errorf("sizing disk %s: %w", d.Path, err)
		}
	}
	return nil
}

// Run serves the BMC until ctx ends or Close is called, then cuts the machine's power. It is called once.
// When it returns, no process, listener or socket of the machine is left.
func (m *Machine) Run(ctx context.Context) error {
	m.mu.Lock()
	m.started = true
	m.mu.Unlock()
	defer close(m.finished)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.closed:
			cancel()
		case <-ctx.Done():
		}
	}()

	srv := &http.Server{
		Handler:           m.handler(),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{m.cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: time.Minute, ReadTimeout: 2 * time.Minute, WriteTimeout: 2 * time.Minute, // clients on a loaded host
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: newErrorLog(m.cfg.Log),
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(m.listener, "", "") }()
	var loops sync.WaitGroup
	loops.Go(func() { m.powerLoop(ctx) })
	loops.Go(func() { m.mediaLoop(ctx) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		cancel()
	}
	_ = srv.Close()
	if err == nil {
		err = <-served
	}
	loops.Wait()
	m.dropMedia()
	m.console.close()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// Close ends Run and waits for it; without a Run it gives back what New took. It may be called more than once.
func (m *Machine) Close() {
	m.closing.Do(func() { close(m.closed) })
	m.mu.Lock()
	started := m.started
	m.mu.Unlock()
	if started {
		<-m.finished
	}
	_ = m.listener.Close()
	m.console.close()
}

// URL is the address of the Redfish service, "https://127.0.0.1:34567".
func (m *Machine) URL() string { return "https://" + m.listener.Addr().String() }

// SPKI is the pin of the BMC's certificate: lower-case hex SHA-256 of its SubjectPublicKeyInfo.
func (m *Machine) SPKI() string { return spki(m.cert) }

// Console is the machine's serial console, the same one across power cycles.
func (m *Machine) Console() *Console { return m.console }

// Reset does in process what a ComputerSystem.Reset with that ResetType does over Redfish. It returns once the reset was
// accepted, which is not when it is done.
func (m *Machine) Reset(kind string) error {
	if !slices.Contains(resetTypes, resetType(kind)) {
		return app.Invalid("ResetType", "%q is not one of %v", kind, resetTypes)
	}
	if v := m.request(resetType(kind)); v != accepted {
		return app.Errorf(app.Conflict, "reset-refused", "%s was refused while the power is %s", kind, m.PowerState())
	}
	return nil
}

// PowerState is what the BMC says: "On", "Off", "PoweringOn" or "PoweringOff".
func (m *Machine) PowerState() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.state.power)
}

// SetOverride does in process what a write of the boot override does over Redfish.
func (m *Machine) SetOverride(o Override) error {
	if !o.valid() {
		return app.Invalid("Boot", "%+v is no boot override of this machine", o)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.boot = o
	m.state.version++
	return nil
}

// Override is the boot override the BMC holds now.
func (m *Machine) Override() Override {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.boot
}
