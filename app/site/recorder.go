package site

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/deploy"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/netboot"
	"github.com/better-compute/bcd/store"
)

// recorderName is the flight recorder's file in the data directory. It is in no backup, and may be deleted.
const recorderName = "recorder.db"

// openRecorder makes the flight recorder. Its file is opened by Run: what is wrong with it stops nothing.
func (s *Site) openRecorder() {
	path := filepath.Join(s.dir, recorderName)
	s.recorder = recorder.New(recorder.Config{
		Log: s.log, Now: now,
		Open: func(ctx context.Context, anew bool) (app.RecordStore, error) {
			r, err := store.OpenRecords(ctx, path, anew)
			if err != nil {
				return nil, err // not a nil *Records in an interface
			}
			return r, nil
		},
		Names:  recorder.Names{Loaders: netboot.Loaders(), Kernel: ramdisk.KernelFile, Initramfs: ramdisk.InitramfsFile, Whole: netboot.ProgramFile, ToDisk: netboot.ExitFile, CD: netboot.CDFile},
		Rivals: func() []app.Rival { return s.netboot.Rivals() },
	})
	s.parts = append(s.parts, part{"recorder", s.recorder.Run, s.recorder.Ready()})
}

// emit writes an event to the audit trail, and to its machine's timeline.
func (s *Site) emit(e app.Event) {
	s.bus.Emit(e)
	s.recorder.Event(e)
}

// recorderHealth says when timelines are not kept.
func (s *Site) recorderHealth(context.Context) ([]health.Warning, error) {
	var out []health.Warning
	now, anew := s.recorder.Fault()
	if now != nil {
		out = append(out, health.Warning{Code: "recorder-broken", Level: "warn", Message: fmt.Sprintf("timelines of machines are not kept: %v", now),
			WayOut: "free some space in the data directory, or see who owns " + recorderName + " there; machines are deployed all the same"})
	}
	if anew != nil {
		out = append(out, health.Warning{Code: "recorder-anew", Level: "info", Message: fmt.Sprintf("timelines of machines were begun anew: %v", anew),
			WayOut: "the old file is kept as " + recorderName + ".damaged; this notice ends when bcd is restarted"})
	}
	if n := s.recorder.Lost(); n > 0 {
		out = append(out, health.Warning{Code: "recorder-lost", Level: "info", Message: fmt.Sprintf("%d records of timelines were left out because they came faster than the disk takes them", n),
			WayOut: "the timelines say where; a faster disk for the data directory helps"})
	}
	return out, nil
}

// verdict is how a machine's boot stands, for the error of a step that waited for it.
func (s *Site) verdict(ctx context.Context, machineID string) (sentence, wayOut string) {
	v := s.recorder.Verdict(ctx, machineID)
	if v == nil || v.Level == recorder.LevelOK {
		return "", ""
	}
	return v.Sentence, v.WayOut
}

// told is what is recorded of a BMC action.
type told struct {
	Action string `json:"action"`
	Phase  string `json:"phase"` // "asked", "done", "failed"
	Was    string `json:"was,omitempty"`
	Millis int64  `json:"millis,omitempty"`
	Error  string `json:"error,omitempty"`
}

// timed writes BMC actions to a machine's timeline: when they were asked, and how they ended.
type timed struct {
	metal.Hardware
	record  func(app.Record)
	machine *app.Machine
}

var _ metal.Hardware = timed{}

// SetPower implements metal.Hardware.
func (t timed) SetPower(ctx context.Context, action string) error {
	return t.do("bmc.power", "power "+action, told{Action: action, Was: string(t.machine.Power)}, func() error { return t.Hardware.SetPower(ctx, action) })
}

// SetBootDevice implements metal.Hardware.
func (t timed) SetBootDevice(ctx context.Context, device string, persistent bool, firmware app.Firmware) error {
	what := "boot from " + device + " once"
	if persistent {
		what = "boot from " + device + " from now on"
	}
	return t.do("bmc.boot", what, told{Action: device}, func() error { return t.Hardware.SetBootDevice(ctx, device, persistent, firmware) })
}

func (t timed) do(kind, what string, d told, f func() error) error {
	begun := now()
	d.Phase = "asked"
	t.say(begun, kind, "info", "The BMC is asked: "+what+".", d)
	err := f()
	took := now().Sub(begun)
	d.Phase, d.Millis = "done", took.Milliseconds()
	level, message := "info", fmt.Sprintf("The BMC has done it, and it was read back: %s, in %s.", what, app.Took(took))
	if err != nil {
		d.Phase, d.Error = "failed", err.Error()
		level, message = "error", "The BMC did not do it: "+what+": "+err.Error()
	}
	t.say(begun.Add(took), kind, level, message, d)
	return err
}

func (t timed) say(at time.Time, kind, level, message string, d told) {
	data, err := json.Marshal(d)
	if err != nil {
		data = nil
	}
	t.record(app.Record{Time: at, Kind: kind, Level: level, MachineID: t.machine.ID, Message: message, Data: data})
}

// boots writes permissions to netboot to a machine's timeline. A permission is written before it is given: the machine may be
// faster.
type boots struct {
	metal.Boots
	record func(app.Record)
}

// Mint implements metal.Boots.
func (b boots) Mint(ctx context.Context, boot app.Boot) (*app.Boot, error) {
	kind, what := "boot.permit", "The next network boot loads the ramdisk."
	switch {
	case boot.Media:
		kind, what = "boot.media", "Its BMC may read the ISO image from now on."
	case boot.ISO != "":
		kind, what = "boot.iso", "The next network boot starts the ISO image."
	case boot.IsRescue:
		what = "The next network boot loads the rescue system."
	}
	b.record(app.Record{Kind: kind, MachineID: boot.MachineID, Workflow: boot.WorkflowID, Message: what})
	return b.Boots.Mint(ctx, boot)
}

// Revoke implements metal.Boots.
func (b boots) Revoke(ctx context.Context, machineID string) error {
	b.record(app.Record{Kind: "boot.revoke", MachineID: machineID, Message: "From now on it boots its disk."})
	return b.Boots.Revoke(ctx, machineID)
}

// claim makes what was seen of a machine's ports, before it was known, part of its timeline.
func (s *Site) claim(m *app.Machine) {
	var macs []app.MAC
	for _, n := range m.NICs {
		macs = append(macs, n.MAC)
	}
	s.recorder.Claim(m.ID, macs...)
}

// untold drops a machine's timeline. Its name may be another's from now on.
func (s *Site) untold(machineID string) {
	s.recorder.Forget(machineID)
	s.consoles.mu.Lock()
	defer s.consoles.mu.Unlock()
	clear(s.consoles.all)
}

// consoles are the consoles that are written to from outside, by machine.
type consoles struct {
	mu  sync.Mutex
	all map[string]*recorder.Console
}

// maxConsoleText bounds what of a line a waiting deploy is told, in bytes.
const maxConsoleText = 1000

// maxConsoles bounds the consoles that are held; beyond it all begin anew.
const maxConsoles = 4096

// ConsoleLine takes a line that a machine printed on its serial console. The machine is given by id or name; of one that is
// not known it is dropped. It does not wait for the disk.
func (s *Site) ConsoleLine(machine, text string) {
	if c := s.consoleOf(machine); c != nil {
		c.Line(text)
		s.engine.Signal(c.Machine(), deploy.SignalConsole, text[:min(len(text), maxConsoleText)])
	}
}

func (s *Site) consoleOf(machine string) *recorder.Console {
	s.consoles.mu.Lock()
	defer s.consoles.mu.Unlock()
	if c := s.consoles.all[machine]; c != nil {
		return c
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	m, err := s.db.Machine(ctx, machine)
	if err != nil {
		return nil
	}
	if s.consoles.all == nil || len(s.consoles.all) >= maxConsoles {
		s.consoles.all = map[string]*recorder.Console{}
	}
	c := s.recorder.Console(m.ID)
	s.consoles.all[machine] = c
	return c
}
