package wipe

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/agent/wipe/internal/erase"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func tearDown(t *testing.T, machine string, spec any) agentv1.Command {
	t.Helper()
	raw, err := json.Marshal([]any{spec})
	if err != nil {
		t.Fatal(err)
	}
	return agentv1.Command{Kind: agentv1.KindDriverInvoke, MachineID: machine, Payload: raw}
}

func quiet(agentv1.ProgressReport) {}

// A driver's tearDown is the wipe, of the disks that are listed and in the way that is named.
func TestTearDown(t *testing.T) {
	for _, way := range []string{"secure", "discard", "overwrite"} {
		r := newRig(t, 4<<20, 4<<20)
		var last agentv1.ProgressReport
		out, err := r.TearDown(context.Background(), tearDown(t, "m-1", agentv1.TearDownSpec{Machine: "m-1", Wipe: way, Disks: []agentv1.DiskTarget{{Serial: "S1"}}}),
			func(p agentv1.ProgressReport) { last = p })
		if raw, _ := json.Marshal(out); err != nil || string(raw) != "{}" {
			t.Errorf("%s: %s, %v", way, raw, err)
		}
		r.wiped(t, "sda")
		r.untouched(t, "sdb")
		if last.Phase != "wipe" || last.Total != 4<<20 {
			t.Errorf("%s: progress %+v", way, last)
		}
	}
}

// The way that is named is where the wipe begins.
func TestTheWayToBegin(t *testing.T) {
	for way, want := range map[string]string{"": "scramble", "secure": "scramble", "discard": discardZero, "overwrite": overwrite} {
		r := newRig(t, 4<<20)
		r.cfg.Drive = func(path string, _ agentv1.Disk) (Drive, error) {
			return &drive{can: erase.Ladder{Methods: []erase.Method{scramble(t, path, 4<<20)}}}, nil
		}
		out, err := r.Wipe(context.Background(), agentv1.Wipe{Disks: []agentv1.DiskTarget{{Serial: "S1"}}, Method: way}, quiet)
		if err != nil || out.Disks[0].Method != want || !out.Disks[0].Erased {
			t.Errorf("%q: %+v, %v; want %s", way, out, err, want)
		}
	}
}

func TestTearDownsThatTouchNothing(t *testing.T) {
	one := []agentv1.DiskTarget{{Serial: "S1"}}
	for name, c := range map[string]struct {
		machine string
		spec    any
		want    string
	}{
		"no way to wipe":    {"m-1", agentv1.TearDownSpec{Machine: "m-1", Disks: one}, ""},
		"no disk of ours":   {"m-1", agentv1.TearDownSpec{Machine: "m-1", Wipe: "secure"}, ""},
		"another machine's": {"m-2", agentv1.TearDownSpec{Machine: "m-1", Wipe: "secure", Disks: one}, "command-not-ours"},
		"an unknown way":    {"m-1", agentv1.TearDownSpec{Machine: "m-1", Wipe: "shred", Disks: one}, "invalid-args"},
		"a disk not there":  {"m-1", agentv1.TearDownSpec{Machine: "m-1", Wipe: "secure", Disks: []agentv1.DiskTarget{{Serial: "S1"}, {Serial: "S9"}}}, "disk-not-found"},
		"an unknown member": {"m-1", map[string]any{"machine": "m-1", "wipe": "secure", "all": true}, "invalid-args"},
	} {
		r := newRig(t, 4<<20)
		if _, err := r.TearDown(context.Background(), tearDown(t, c.machine, c.spec), quiet); reason(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		r.untouched(t, "sda")
	}
}

// A disk that is not proven erased fails the call.
func TestATearDownThatIsNotProvenFails(t *testing.T) {
	r := newRig(t, 4<<20)
	r.cfg.Open = func(p string) (disk.Device, error) {
		d, err := disk.Open(p)
		return stubborn{d}, err
	}
	_, err := r.TearDown(context.Background(), tearDown(t, "m-1", agentv1.TearDownSpec{Machine: "m-1", Wipe: "secure", Disks: []agentv1.DiskTarget{{Serial: "S1"}}}), quiet)
	if reason(err) != "not-erased" {
		t.Errorf("got %v", err)
	}
}

// stubborn is a disk that takes sentinels and keeps them.
type stubborn struct{ disk.Device }

func (stubborn) Zero(int64, int64) error    { return nil }
func (stubborn) Discard(int64, int64) error { return nil }
func (s stubborn) WriteAt(b []byte, off int64) (int, error) {
	for _, c := range b {
		if c != 0 {
			return s.Device.WriteAt(b, off)
		}
	}
	return len(b), nil // zeros are taken and forgotten
}
