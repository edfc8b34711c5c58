package ipmi

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// script answers commands in place of ipmitool.
type script struct {
	mu  sync.Mutex
	ran []string
	f   func(command string, c command) answer
}

// newScripted is a driver whose ipmitool is a function of the command.
func newScripted(t testing.TB, f func(command string, c command) answer) (*rig, *script) {
	t.Helper()
	s := &script{f: f}
	r := newRig(t, Config{}, "192.0.2.7", "")
	d := New(Config{Wait: r.clock.wait})
	d.exec = func(ctx context.Context, _ *login, c command) (answer, error) {
		if err := ctx.Err(); err != nil {
			return answer{}, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ran = append(s.ran, c.String())
		return s.f(c.String(), c), nil
	}
	def, err := driver.Define(d.Definition())
	if err != nil {
		t.Fatal(err)
	}
	r.Driver = def
	return r, s
}

func (s *script) times(command string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.ran {
		if c == command {
			n++
		}
	}
	return n
}

func failing(stderr string) answer { return answer{stderr: stderr + "\n", exit: 1} }

// Case 43: a machine that is at the wished end is done, whatever the BMC says about being asked.
func TestPowerEnds(t *testing.T) {
	const notNow = "Set Chassis Power Control to Down/Off failed: Command not supported in present state"
	for name, test := range map[string]struct {
		on        bool
		action    string
		refuses   map[string]string // by command word: what it fails with
		turnsOff  bool              // on the first refusal: another hand was faster
		code      string
		never     string // a command that must not be sent
		endsOn    bool
		ignoresIt bool // accepts and does nothing
	}{
		"off while off":            {action: "off", never: "off"},
		"soft while off":           {action: "soft", never: "soft"},
		"on while on":              {on: true, action: "on", never: "on", endsOn: true},
		"cycle while off":          {action: "cycle", never: "cycle", endsOn: true},
		"reset while off":          {action: "reset", never: "reset", endsOn: true},
		"cycle":                    {on: true, action: "cycle", endsOn: true},
		"reset":                    {on: true, action: "reset", endsOn: true},
		"off refused, off by then": {on: true, action: "off", refuses: map[string]string{"off": notNow}, turnsOff: true},
		"off refused, still on":    {on: true, action: "off", refuses: map[string]string{"off": notNow}, code: driver.CodeBMCError, endsOn: true},
		"no answer, off by then":   {on: true, action: "off", refuses: map[string]string{"off": "Unable to set Chassis Power Control to Down/Off"}, turnsOff: true},
		"on refused":               {action: "on", refuses: map[string]string{"on": "Set Chassis Power Control to Up/On failed: Invalid command"}, code: driver.CodeBMCError},
		"busy for ever":            {action: "on", refuses: map[string]string{"on": "Set Chassis Power Control to Up/On failed: BMC initialization in progress"}, code: driver.CodeBusy},
		"soft ignored":             {on: true, action: "soft", ignoresIt: true, code: driver.CodeTimeout, endsOn: true, never: "off"},
		"off ignored":              {on: true, action: "off", ignoresIt: true, code: driver.CodeTimeout, endsOn: true},
		"no privilege":             {on: true, action: "off", refuses: map[string]string{"off": "Set Chassis Power Control to Down/Off failed: Insufficient privilege level"}, code: CodePrivilege, endsOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			on := test.on
			r, s := newScripted(t, func(c string, _ command) answer {
				word, isPower := strings.CutPrefix(c, "chassis power ")
				switch {
				case !isPower:
					return failing("unexpected")
				case word == "status" && on:
					return answer{stdout: statusOn}
				case word == "status":
					return answer{stdout: statusOff}
				case test.refuses[word] != "":
					on = on && !test.turnsOff
					return failing(test.refuses[word])
				case test.ignoresIt:
				case word == "off" || word == "soft":
					on = false
				case word == "on":
					on = true
				}
				return answer{stdout: "Chassis Power Control: " + word + "\n"}
			})
			_, e := r.call(t.Context(), "power", "setPower", `["`+test.action+`"]`)
			switch {
			case test.code == "" && e != nil:
				t.Fatalf("failed: %s: %s", e.Code, e.Message)
			case test.code != "" && (e == nil || e.Code != test.code):
				t.Fatalf("got %v, want %s", e, test.code)
			case e != nil && e.Retryable:
				t.Error("a power change is not repeated")
			}
			if on != test.endsOn {
				t.Errorf("the machine is on: %v", on)
			}
			if n := s.times("chassis power " + test.never); test.never != "" && n > 0 {
				t.Errorf("%q was sent %d times", test.never, n)
			}
		})
	}
}

func TestPowerChangeSurvivesDeafReads(t *testing.T) {
	on, reads := true, 0
	r, _ := newScripted(t, func(c string, _ command) answer {
		switch c {
		case "chassis power off":
			on = false
			return answer{stdout: "Chassis Power Control: Down/Off\n"}
		case "chassis power status":
			if reads++; reads > 1 && reads < 6 {
				return failing("Get Chassis Power Status failed: Node busy")
			}
		}
		if on {
			return answer{stdout: statusOn}
		}
		return answer{stdout: statusOff}
	})
	r.must(t, "power", "setPower", `["off"]`)
}

func TestPowerStateIsReadExactly(t *testing.T) {
	for text, want := range map[string]string{
		statusOn: "on", "Chassis Power is off\r\n": "off", "noise\nChassis Power is on\n": "on",
		"": "unknown", "Chassis Power is on fire\n": "unknown", "Chassis Power is \n": "unknown", "chassis power is on": "unknown",
	} {
		got := parsePower(text)
		if got.Power != want || (want == "unknown") != (got.Reason != "") {
			t.Errorf("%q reads as %+v, want %s", text, got, want)
		}
	}
}

// bootScript is a BMC's boot flags behind ipmitool. lose changes what bootdev sends.
func bootScript(flags *byte, device *byte, lose func(word byte, options string) byte, refuse string) func(string, command) answer {
	codes := map[string]byte{"none": 0, "pxe": 4, "disk": 8, "cdrom": 0x14, "bios": 0x18}
	return func(_ string, c command) answer {
		switch {
		case c.words[0] == "raw" && c.words[3] == "0x03":
			return answer{stdout: "\n"}
		case c.words[0] == "raw" && refuse != "":
			return failing(refuse)
		case c.words[0] == "raw":
			b := hexBytes(c.words[4:6])
			*flags, *device = b[0], b[1]
			return answer{stdout: "\n"}
		case c.words[1] == "bootdev":
			if refuse != "" {
				return answer{stderr: refuse + "\n"} // and exit status 0
			}
			first, options := byte(0x80), ""
			if len(c.words) > 3 {
				options = c.words[3]
			}
			if strings.Contains(options, "efiboot") {
				first |= 0x20
			}
			if strings.Contains(options, "persistent") {
				first |= 0x40
			}
			*flags, *device = lose(first, options), codes[c.words[2]]
			return answer{stdout: "Set Boot Device to " + c.words[2] + "\n"}
		case c.words[1] == "bootparam":
			return answer{stdout: bootParam(*flags, *device)}
		}
		return answer{stdout: "Manufacturer ID           : 674\nProduct ID                : 256 (0x0100)\n"}
	}
}

// The caller's deadline ends the wait for a change, and the error says what was seen last.
func TestPowerChangeAtItsDeadline(t *testing.T) {
	past, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for code, ctx := range map[string]context.Context{driver.CodeTimeout: past, driver.CodeCancelled: gone} {
		d := New(Config{})
		d.exec = func(context.Context, *login, command) (answer, error) { return answer{stdout: statusOn}, nil }
		err := power{&operations{Driver: d}}.await(driver.NewContext(ctx), &login{}, driver.PowerOff, driver.ActionSoft)
		e := driver.AsError(err)
		if e == nil || e.Code != code {
			t.Fatalf("got %v, want %s", err, code)
		}
		if told := strings.Contains(e.Message, "still read on") && strings.Contains(e.Message, "ask for off"); told != (code == driver.CodeTimeout) {
			t.Errorf("%s: %s", code, e.Message)
		}
	}
}
