package bmctest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/child"
)

// SimulatorPassword is User's password on OpenIPMI's simulator.
const SimulatorPassword = "sim-secret"

// Simulator is OpenIPMI's ipmi_sim (Debian: openipmi) on loopback: a BMC that shares no code with ipmitool or with us. It
// speaks cipher suites up to 3, and keeps of the boot flags only the device.
type Simulator struct {
	dir     string
	addr    string
	machine SimulatedMachine
	serial  net.Listener
}

// SimulatorConfig shapes a simulator.
type SimulatorConfig struct {
	Machine   SimulatedMachine // nil: a Bench that is on
	GUID      []byte           // as sent, 16 bytes; nil: that of IPMIGUID
	FRU       []byte           // of device 0; nil: DemoFRU
	NoSensors bool             // an empty sensor repository
}

// SimulatedMachine is what hangs on a simulator's BMC.
type SimulatedMachine interface {
	On() bool
	SetPower(on bool) error
	Reset() error
	Shutdown() error // asks the operating system
	// BootDevice and SetBootDevice are about the next boot, in the simulator's words: "none", "pxe", "default" (the disk),
	// "cdrom", "bios".
	BootDevice() string
	SetBootDevice(device string) error
}

// chassisProgram is what the simulator asks for the machine's power and boot device: it passes the question on to this
// process.
const chassisProgram = `dir=$1; shift
case $1 in get|set|check) ;; *) shift ;; esac
exec curl -s -S --fail --max-time 30 --unix-socket "$dir/chassis" --data-binary "$*" http://bmc/
`

// lanProgram answers for the BMC's own network settings.
const lanProgram = `case $1 in get|set|check) ;; *) shift ;; esac
op=$1; shift
[ "$op" = get ] && for p in "$@"; do case $p in
	ip_addr) echo "$p:192.0.2.50" ;;
	ip_addr_src) echo "$p:static" ;;
	mac_addr) echo "$p:00:00:5e:00:53:bc" ;;
	subnet_mask) echo "$p:255.255.255.0" ;;
	default_gw_ip_addr) echo "$p:192.0.2.1" ;;
	*_mac_addr) echo "$p:00:00:00:00:00:00" ;;
	*) echo "$p:0.0.0.0" ;;
esac; done
exit 0
`

const simulatorConfig = `name "node1"
set_working_mc 0x20
  startlan 1
    addr %[1]s %[7]d
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid %[2]s
    lan_config_program "/bin/sh %[3]s/lan.sh"
  endlan
  chassis_control "/bin/sh %[3]s/chassis.sh %[3]s"
  sol "tcp:%[4]s" 115200 history=16384
  user 1 false "" "" user 10 none md2 md5 straight
  user 2 true "%[5]s" "%[6]s" admin 10 none md2 md5 straight
`

// NewSimulator starts a simulator. Without ipmi_sim or curl on this host the test is left out.
func NewSimulator(t testing.TB, cfg SimulatorConfig) *Simulator {
	t.Helper()
	path, err := exec.LookPath("ipmi_sim")
	if err != nil {
		t.Skip("left out: OpenIPMI's ipmi_sim is not installed")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("left out: curl is not installed")
	}
	s := &Simulator{machine: cfg.Machine}
	if s.machine == nil {
		s.machine = &Bench{on: true, boot: "default"}
	}
	if s.dir, err = os.MkdirTemp("", "bmc"); err != nil { // short: it holds a socket
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	if s.serial, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.serial.Close() })
	if err := s.listen(t); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"chassis.sh": chassisProgram, "lan.sh": lanProgram, "emu": cfg.commands()} {
		s.write(t, name, text)
	}
	for tries := 1; ; tries++ {
		if err = s.start(t, path, cfg.GUID); err == nil {
			return s
		}
		if tries == 5 {
			t.Fatal(err)
		}
	}
}

// listen answers the chassis program.
func (s *Simulator) listen(t testing.TB) error {
	l, err := net.Listen("unix", filepath.Join(s.dir, "chassis"))
	if err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(io.LimitReader(r.Body, 4096))
		if err == nil {
			err = s.chassis(w, strings.Fields(string(question)))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-ended })
	return nil
}

// chassis answers "get power boot" and "set power 1".
func (s *Simulator) chassis(w io.Writer, words []string) error {
	if len(words) == 0 {
		return errors.New("an empty question")
	}
	for i := 1; i < len(words); i++ {
		if words[0] == "get" {
			s.get(w, words[i])
			continue
		}
		if i++; i == len(words) || words[0] != "set" {
			break
		}
		if err := s.set(words[i-1], words[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Simulator) get(w io.Writer, what string) {
	switch what {
	case "power":
		on := 0
		if s.machine.On() {
			on = 1
		}
		fmt.Fprintf(w, "power:%d\n", on)
	case "boot":
		fmt.Fprintf(w, "boot:%s\n", s.machine.BootDevice())
	}
}

func (s *Simulator) set(what, value string) error {
	switch what {
	case "power":
		return s.machine.SetPower(value == "1")
	case "reset":
		return s.machine.Reset()
	case "shutdown":
		return s.machine.Shutdown()
	case "boot":
		return s.machine.SetBootDevice(value)
	}
	return nil
}

// Bench is a machine of nothing but a power state and a boot device.
type Bench struct {
	mu   sync.Mutex
	on   bool
	boot string
}

// On reports the power.
func (b *Bench) On() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.on }

// SetPower changes the power.
func (b *Bench) SetPower(on bool) error { b.mu.Lock(); defer b.mu.Unlock(); b.on = on; return nil }

// Reset does nothing that shows.
func (b *Bench) Reset() error { return nil }

// Shutdown turns the power off.
func (b *Bench) Shutdown() error { return b.SetPower(false) }

// BootDevice is what was set last.
func (b *Bench) BootDevice() string { b.mu.Lock(); defer b.mu.Unlock(); return b.boot }

// SetBootDevice takes any word.
func (b *Bench) SetBootDevice(d string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.boot = d
	return nil
}

func (s *Simulator) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// commands is the simulator's command file: one BMC with a FRU and sensors.
func (cfg SimulatorConfig) commands() string {
	var b strings.Builder
	fmt.Fprintln(&b, "mc_setbmc 0x20")
	fmt.Fprintln(&b, "mc_add 0x20 0 no-device-sdrs 0x01 2 0x15 0x9f 0x1291 0x0f02 persist_sdr")
	fmt.Fprintln(&b, "sel_enable 0x20 1000 0x0a")
	fru := cfg.FRU
	if fru == nil {
		fru = DemoFRU()
	}
	fmt.Fprintf(&b, "mc_add_fru_data 0x20 0 %d data%s\n", len(fru), bytesOf(fru))
	if !cfg.NoSensors {
		for i, name := range []string{"CPU Temp", "Inlet Temp"} {
			fmt.Fprintf(&b, "main_sdr_add 0x20%s\n", bytesOf(sensorRecord(uint16(i+1), byte(i+1), name)))
			fmt.Fprintf(&b, "sensor_add 0x20 0 %d 1 1\n", i+1)
			fmt.Fprintf(&b, "sensor_set_event_support 0x20 0 %d enable scanning per-state 000111111111111 000111111111111 000111111111111 000111111111111\n", i+1)
			fmt.Fprintf(&b, "sensor_set_value 0x20 0 %d 42 0\n", i+1)
		}
	}
	fmt.Fprintln(&b, "mc_enable 0x20")
	return b.String()
}

func bytesOf(p []byte) string {
	var b strings.Builder
	for _, c := range p {
		fmt.Fprintf(&b, " 0x%02x", c)
	}
	return b.String()
}

// start runs the simulator at a place of its own and returns when it answers there.
func (s *Simulator) start(t testing.TB, path string, guid []byte) error {
	if guid == nil {
		guid = wireGUID()
	}
	at := place()
	s.addr = at.String()
	s.write(t, "lan.conf", fmt.Sprintf(simulatorConfig, at.Addr(), hex.EncodeToString(guid), s.dir, s.serial.Addr(), User, SimulatorPassword, at.Port()))
	state, err := os.MkdirTemp(s.dir, "state")
	if err != nil {
		return err
	}
	cmd := exec.Command(path, "-n", "-c", filepath.Join(s.dir, "lan.conf"), "-f", filepath.Join(s.dir, "emu"), "-s", state)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := child.Start(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stop := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-ended }
	if err := answers(s.addr, ended); err != nil {
		stop()
		return fmt.Errorf("ipmi_sim does not answer: %w: %s", err, output.String())
	}
	t.Cleanup(stop)
	return nil
}

// places counts the places that were given out.
var places atomic.Uint32

// place is where no other simulator listens: a loopback address that this process alone uses, and ports of it that no kernel
// gives to whoever asks for any.
func place() netip.AddrPort {
	pid := os.Getpid() // at most 22 bits
	a := netip.AddrFrom4([4]byte{127, byte(64 + pid>>16), byte(pid >> 8), byte(pid)})
	return netip.AddrPortFrom(a, uint16(6230+places.Add(1)%20000))
}

// authCapabilities asks for channel authentication capabilities, which a BMC answers without a session.
var authCapabilities = []byte{0x06, 0, 0xff, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x20, 0x18, 0xc8, 0x81, 0, 0x38, 0x8e, 0x04, 0xb5}

// answers asks a BMC again and again until it answers, for at most a minute, or until ended is closed.
func answers(addr string, ended <-chan struct{}) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		return err
	}
	defer conn.Close()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		select {
		case <-ended:
			return fmt.Errorf("it ended")
		default:
		}
		_, _ = conn.Write(authCapabilities)
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 256)); err == nil {
			return nil
		} else if !os.IsTimeout(err) {
			<-time.After(20 * time.Millisecond) // refused: nothing listens yet
		}
	}
	return os.ErrDeadlineExceeded
}

// Address is the simulator's HOST:PORT.
func (s *Simulator) Address() string { return s.addr }

// Serial is where the simulator connects to when a console is opened: the machine's serial line.
func (s *Simulator) Serial() net.Listener { return s.serial }

// Machine is what hangs on the BMC.
func (s *Simulator) Machine() SimulatedMachine { return s.machine }
