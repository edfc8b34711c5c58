package bmctest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/transport/udp"
	"github.com/bougou/go-ipmi/pkg/types"
)

// IPMIGUID is what the machine of an IPMI BMC gives as its GUID, in the order of RFC 4122.
const IPMIGUID = "01234567-89ab-4def-8123-456789abcdef"

// IPMIPassword is User's password on IPMI BMCs: as many bytes as IPMI takes, with what a shell would stumble over.
const IPMIPassword = `-p@ss$(w)rd\'"&;` + "`xy"

// IPMIConfig shapes an IPMI BMC. The zero value is one of today: cipher suites 3 and 17, no BMC key.
type IPMIConfig struct {
	Suites    []types.CipherSuiteID
	Key       []byte             // K_g
	Privilege bmc.PrivilegeLevel // of the user; 0: administrator
	Console   bool               // has serial over LAN
	FRU       []byte             // of device 0; nil: one of DemoFRU
	NoSensors bool               // an empty sensor repository
}

// IPMI is a BMC in this process on loopback, made of the server of go-ipmi: another implementation than ipmitool's.
type IPMI struct {
	addr  string
	bmc   *bmc.BMC
	Line  *Line // the machine's serial line; nil without Console
	mu    sync.Mutex
	on    bool
	flags [5]byte // boot flags, parameter 5
	mask  byte    // bits of the first byte of the boot flags that are kept
	deaf  bool    // to a request to shut down
	log   []string
	wrong map[string]types.CompletionCode // by "06/37"
}

// NewIPMI starts a BMC whose machine is on.
func NewIPMI(t testing.TB, cfg IPMIConfig) *IPMI {
	t.Helper()
	b := &IPMI{on: true, mask: 0xff, wrong: map[string]types.CompletionCode{}}
	m := mock.New()
	h := &machineHAL{HAL: m, b: b}
	if cfg.Console {
		b.Line = newLine()
		m.SetConsole(b.Line)
	}
	if cfg.FRU == nil {
		cfg.FRU = DemoFRU()
	}
	if err := m.Storage().FRU().Write(context.Background(), 0, cfg.FRU); err != nil {
		t.Fatal(err)
	}
	if !cfg.NoSensors {
		for i, name := range []string{"CPU Temp", "Fan1"} {
			record := sensorRecord(uint16(i+1), byte(i+1), name)
			if err := m.Storage().SDR().Write(context.Background(), uint16(i+1), record); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cfg.Suites == nil {
		cfg.Suites = []types.CipherSuiteID{3, 17}
	}
	info := bmc.DeviceInfo{DeviceID: 32, DeviceRevision: 1, FirmwareMajor: 2, FirmwareMinor: 0x15, IPMIVersion: 0x02, ManufacturerID: 674, ProductID: 256, AdditionalDeviceSupport: 0xbf}
	b.bmc = bmc.New(info, [16]byte{}, h, bmc.WithKG(cfg.Key))
	b.bmc.SetCipherSuites(cfg.Suites)
	if cfg.Privilege == 0 {
		cfg.Privilege = bmc.PrivilegeLevelAdministrator
	}
	user, err := b.bmc.Users.Add(2, User)
	if err != nil {
		t.Fatal(err)
	}
	user.SetPassword([]byte(IPMIPassword))
	user.Enabled = true
	user.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: cfg.Privilege, Enabled: true}
	b.serve(t)
	return b
}

func (b *IPMI) serve(t testing.TB) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	b.addr = conn.LocalAddr().String()
	reg := handlers.NewRegistry()
	reg.Use(b.watch)
	handlers.RegisterAllHandlers(reg)
	reg.RegisterFunc(types.CommandGetSystemGUID, func(context.Context, *handlers.HandlerContext, []byte) ([]byte, types.CompletionCode, error) {
		return wireGUID(), types.CodeOK, nil
	})
	reg.RegisterFunc(types.CommandSetSystemBootOptions, b.setBoot)
	reg.RegisterFunc(types.CommandGetSystemBootOptions, b.getBoot)
	reg.RegisterFunc(types.CommandGetSensorReading, func(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
		return []byte{42, 0xc0, 0xc0}, types.CodeOK, nil
	})
	s := server.NewServer(b.bmc, udp.Wrap(conn), server.WithHandlerRegistry(reg))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); _ = s.Close(); _ = conn.Close(); <-ended })
}

// watch notes every command and refuses those that are to fail.
func (b *IPMI) watch(next handlers.Handler) handlers.Handler {
	return handlers.HandlerFunc(func(ctx context.Context, h *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
		name := fmt.Sprintf("%02x/%02x", uint8(h.Command.NetFn), h.Command.ID)
		b.mu.Lock()
		b.log = append(b.log, fmt.Sprintf("%s:%x", name, req))
		code, refuse := b.wrong[name]
		b.mu.Unlock()
		if refuse {
			return nil, code, nil
		}
		return next.Handle(ctx, h, req)
	})
}

// Address is the BMC's HOST:PORT.
func (b *IPMI) Address() string { return b.addr }

// Commands lists what the BMC was asked for, each as network function, slash, command, colon, data in hex.
func (b *IPMI) Commands() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

// Refuse makes a command ("00/08") fail with a completion code.
func (b *IPMI) Refuse(command string, code byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong[command] = types.CompletionCode(code)
}

// KeepFlags makes the BMC lose all bits of the first byte of its boot flags but these.
func (b *IPMI) KeepFlags(mask byte) { b.mu.Lock(); defer b.mu.Unlock(); b.mask = mask }

// Deaf makes the machine ignore requests to shut down.
func (b *IPMI) Deaf() { b.mu.Lock(); defer b.mu.Unlock(); b.deaf = true }

// On reports the machine's power.
func (b *IPMI) On() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.on }

// BootFlags gives the first two bytes of the stored boot flags.
func (b *IPMI) BootFlags() [2]byte { b.mu.Lock(); defer b.mu.Unlock(); return [2]byte(b.flags[:2]) }

// SOLSession is the session that holds the serial console; 0 none.
func (b *IPMI) SOLSession() uint32 { return b.bmc.SOL.ActiveSessionID(1) }

// setBoot keeps the bytes of the boot flags as they come.
func (b *IPMI) setBoot(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(req) >= 3 && req[0]&0x7f == 5 {
		b.flags = [5]byte{}
		copy(b.flags[:], req[1:])
		b.flags[0] &= b.mask
	}
	return nil, types.CodeOK, nil
}

func (b *IPMI) getBoot(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(req) < 1 || req[0]&0x7f != 5 {
		return nil, types.CodeParameterNotSupported, nil
	}
	return append([]byte{1, 5}, b.flags[:]...), types.CodeOK, nil
}

// machineHAL is the hardware behind a BMC.
type machineHAL struct {
	*mock.HAL
	b *IPMI
}

func (h *machineHAL) Chassis() hal.ChassisHAL { return &chassis{ChassisHAL: h.HAL.Chassis(), b: h.b} }
func (h *machineHAL) Network() hal.NetworkHAL { return network{} }

type chassis struct {
	hal.ChassisHAL
	b *IPMI
}

var errPresentState = errors.New("not in this state")

func (c *chassis) PowerState(context.Context) (bool, error) { return c.b.On(), nil }

func (c *chassis) SetPower(_ context.Context, on bool) error { return c.set(on) }

func (c *chassis) set(on bool) error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.on = on
	return nil
}

func (c *chassis) PowerCycle(context.Context) error { return c.whileOn(true) }
func (c *chassis) ColdReset(context.Context) error  { return c.whileOn(true) }

// WarmReset is what the server calls for a request to shut down.
func (c *chassis) WarmReset(context.Context) error { return c.whileOn(c.b.deaf) }

func (c *chassis) whileOn(end bool) error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if !c.b.on {
		return errPresentState
	}
	c.b.on = end
	return nil
}

type network struct{}

func (network) GetConfig(context.Context) (*hal.IPConfig, error) {
	return &hal.IPConfig{IP: [4]byte{192, 0, 2, 50}, Mask: [4]byte{255, 255, 255, 0}, Gateway: [4]byte{192, 0, 2, 1}, MAC: [6]byte{0x00, 0x00, 0x5e, 0x00, 0x53, 0xbc}}, nil
}

func (network) SetConfig(context.Context, *hal.IPConfig) error { return hal.ErrNotSupported }

// wireGUID is IPMIGUID as IPMI sends it, last octet first.
func wireGUID() []byte {
	g := []byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	slices.Reverse(g)
	return g
}

// Line is a serial line between a console and a machine.
type Line struct {
	mu    sync.Mutex
	print []byte        // of the machine, not read yet
	typed []byte        // by the console
	more  chan struct{} // has a value when typed grew
	open  int
}

func newLine() *Line { return &Line{more: make(chan struct{}, 1)} }

// Open attaches a console.
func (l *Line) Open(context.Context) (hal.ConsoleConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	return l, nil
}

// Print has the machine print.
func (l *Line) Print(p []byte) { l.mu.Lock(); defer l.mu.Unlock(); l.print = append(l.print, p...) }

// ReadAvailable gives what the machine printed.
func (l *Line) ReadAvailable(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := copy(p, l.print)
	l.print = l.print[n:]
	return n, nil
}

// Write takes what is typed.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.typed = append(l.typed, p...)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// SendBreak does nothing.
func (l *Line) SendBreak(context.Context) error { return nil }

// Close detaches a console.
func (l *Line) Close() error { l.mu.Lock(); defer l.mu.Unlock(); l.open--; return nil }

// Await waits until exactly want was typed since the last Await, and fails the test when it is not after a minute.
func (l *Line) Await(t testing.TB, want []byte) {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		l.mu.Lock()
		got := slices.Clone(l.typed)
		if len(got) >= len(want) {
			l.typed = nil
		}
		l.mu.Unlock()
		if len(got) >= len(want) {
			if !bytes.Equal(got, want) {
				t.Fatalf("the machine got %q, want %q", got, want)
			}
			return
		}
		select {
		case <-l.more:
		case <-late.C:
			t.Fatalf("the machine got %q, want %q", got, want)
		}
	}
}
