package recorder_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
)

// disk is a store that breaks on demand.
type disk struct {
	recorder.Memory
	mu      sync.Mutex
	err     error
	gate    chan struct{} // a write waits for it
	batches int
	closed  int
}

func (d *disk) fail(err error) { d.mu.Lock(); defer d.mu.Unlock(); d.err = err }

func (d *disk) AddRecords(ctx context.Context, r []app.Record) error {
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	d.batches++
	return d.Memory.AddRecords(ctx, r)
}

// ClaimRecords fails, as a database does, once its caller has gone.
func (d *disk) ClaimRecords(ctx context.Context, mac app.MAC, machineID string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.Memory.ClaimRecords(ctx, mac, machineID)
}

func (d *disk) Close() error { d.mu.Lock(); defer d.mu.Unlock(); d.closed++; return nil }

// rig is a running recorder; it is stopped at the end of the test's bubble.
type rig struct {
	*recorder.Recorder
	stop func()
}

func run(t *testing.T, c recorder.Config) *rig {
	t.Helper()
	c.Log, c.Names = slog.New(slog.DiscardHandler), names
	r := recorder.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	x := &rig{r, func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}}
	t.Cleanup(x.stop)
	return x
}

func onDisk(d *disk) func(context.Context, bool) (app.RecordStore, error) {
	return func(context.Context, bool) (app.RecordStore, error) { return d, nil }
}

func (r *rig) messages(t *testing.T, f app.RecordFilter) (out []string) {
	t.Helper()
	all, err := r.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		out = append(out, x.Message)
	}
	return out
}

func of(machine, kind, message string) app.Record {
	return app.Record{Kind: kind, MachineID: machine, Message: message}
}

func settle() { time.Sleep(time.Second); synctest.Wait() } // in a bubble: no time passes outside

func TestRecordsAreWrittenInBatchesAndFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		r := run(t, recorder.Config{Open: onDisk(d)})
		defer r.stop()
		s := r.Follow(app.RecordFilter{MachineID: "m-1", Kinds: []string{"dhcp."}}, 8)
		defer s.Close()
		for i := range 500 {
			r.Record(of("m-2", "dhcp.ack", fmt.Sprint(i)))
		}
		r.Event(app.Event{Kind: "dhcp.offer", MachineID: "m-1", Message: "a\x1b[31mb\x00\xffc", Data: []byte(`{"mac":"00:00:5E:00:53:01"}`)})
		r.Record(of("m-1", "bmc.power", "not followed"))
		r.Event(app.Event{Kind: "user.login", Message: "of no machine"})
		settle()
		if d.batches != 1 {
			t.Errorf("%d batches", d.batches)
		}
		x := <-s.C
		if x.ID != 501 || x.Message != "ab\uFFFDc" || x.MAC != portA || x.Level != "info" || x.Time.IsZero() || len(s.C) != 0 {
			t.Errorf("followed %+v and %d more", x, len(s.C))
		}
		r.Record(of("m-1", "bmc.power", "late"))
		r.stop()
		if got, err := d.ListRecords(t.Context(), app.RecordFilter{MachineID: "m-1"}); err != nil || got[0].Message != "late" || d.closed != 1 {
			t.Errorf("at the end %v, %v, closed %d times", got, err, d.closed)
		}
	})
}

// A store that does not keep up costs records, never time, and each machine is told what it lost.
func TestAStormIsCountedAndBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{gate: make(chan struct{})}
		r := run(t, recorder.Config{Open: onDisk(d), Queue: 10})
		defer r.stop()
		r.Record(of("m-1", "dhcp.ack", "first"))
		settle() // the writer waits for the gate now
		for range 25 {
			r.Record(of("m-1", "dhcp.ack", "more"))
			r.Record(of("m-2", "dhcp.ack", "more"))
		}
		if r.Lost() != 40 {
			t.Errorf("%d lost, want 40", r.Lost())
		}
		close(d.gate)
		settle()
		for _, m := range []string{"m-1", "m-2"} {
			got, err := r.List(t.Context(), app.RecordFilter{MachineID: m, Kinds: []string{recorder.KindDropped}})
			if err != nil || len(got) != 1 || !strings.HasPrefix(got[0].Message, "20 records were left out") || got[0].Level != "warn" {
				t.Errorf("%s was told %+v, %v", m, got, err)
			}
		}
	})
}

func TestASlowFollowerIsToldWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, recorder.Config{})
		defer r.stop()
		s := r.Follow(app.RecordFilter{MachineID: "m-1"}, 2)
		for i := range 6 {
			r.Record(of("m-1", "a.b", fmt.Sprint(i)))
		}
		settle()
		<-s.C
		<-s.C
		r.Record(of("m-1", "a.b", "after"))
		settle()
		if x := <-s.C; x.Kind != recorder.KindDropped || !strings.HasPrefix(x.Message, "4 records are missing") {
			t.Errorf("first after the gap %+v", x)
		}
		if x := <-s.C; x.Message != "after" {
			t.Errorf("second after the gap %+v", x)
		}
		s.Close()
	})
}

// A disk that is full, a file that is damaged and one that cannot be opened stop nothing: verdicts go on, health is told.
func TestABrokenStoreStopsNothing(t *testing.T) {
	full := app.Errorf(app.StorageFull, "store-full", "the disk is full")
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		r := run(t, recorder.Config{Open: onDisk(d)})
		defer r.stop()
		s := r.Follow(app.RecordFilter{MachineID: "m-1"}, 8)
		defer s.Close()
		d.fail(full)
		r.Record(app.Record{Kind: "bmc.power", MachineID: "m-1", Data: []byte(`{"action":"on","phase":"asked"}`)})
		settle()
		if now, _ := r.Fault(); !errors.Is(now, full) {
			t.Errorf("fault %v", now)
		}
		if x := <-s.C; x.ID != 0 {
			t.Errorf("followed %+v", x)
		}
		if v := r.Verdict(t.Context(), "m-1"); v == nil || v.Code != recorder.CodeStarting {
			t.Errorf("verdict %+v", v)
		}
		d.fail(nil)
		r.Record(of("m-1", "a.b", "kept"))
		settle()
		if now, anew := r.Fault(); now != nil || anew != nil {
			t.Errorf("after the disk has room: %v, %v", now, anew)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		first, second, opened := &disk{}, &disk{}, []bool{}
		r := run(t, recorder.Config{Open: func(_ context.Context, anew bool) (app.RecordStore, error) {
			if opened = append(opened, anew); anew {
				return second, nil
			}
			return first, nil
		}})
		defer r.stop()
		first.fail(app.Errorf(app.Unavailable, "store-damaged", "the file is damaged"))
		r.Record(of("m-1", "a.b", "lost"))
		settle()
		r.Record(of("m-1", "a.b", "kept"))
		settle()
		if got := r.messages(t, app.RecordFilter{MachineID: "m-1"}); len(got) != 1 || got[0] != "kept" || fmt.Sprint(opened) != "[false true]" || first.closed != 1 {
			t.Errorf("%v, opened %v, closed %d times", got, opened, first.closed)
		}
		if now, anew := r.Fault(); now != nil || anew == nil {
			t.Errorf("faults %v, %v", now, anew)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d, refuse := &disk{}, true
		var mu sync.Mutex
		r := run(t, recorder.Config{Open: func(context.Context, bool) (app.RecordStore, error) {
			mu.Lock()
			defer mu.Unlock()
			if refuse {
				return nil, full
			}
			return d, nil
		}})
		defer r.stop()
		r.Record(of("m-1", "a.b", "in memory"))
		settle()
		if now, _ := r.Fault(); !errors.Is(now, full) || len(r.messages(t, app.RecordFilter{MachineID: "m-1"})) != 1 {
			t.Errorf("fault %v", now)
		}
		mu.Lock()
		refuse = false
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		r.Record(of("m-1", "a.b", "in the file"))
		settle()
		if now, _ := r.Fault(); now != nil || d.batches != 1 {
			t.Errorf("later: %v, %d batches", now, d.batches)
		}
	})
}

// What was seen of a port before somebody accepted its machine is the machine's from then on, and so is what comes later
// from a network that has not heard of it yet.
func TestAcceptedMachinesKeepWhatWasSeenBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, recorder.Config{})
		defer r.stop()
		heard := func(msg string) {
			r.Event(app.Event{Kind: "dhcp.heard", Message: msg, Data: []byte(`{"mac":"00:00:5e:00:53:01","request":"DISCOVER","stage":"firmware"}`)})
		}
		heard("before")
		settle()
		if got := r.messages(t, app.RecordFilter{MAC: portA}); len(got) != 1 {
			t.Errorf("of the port: %v", got)
		}
		heard("just before")
		r.Claim("m-1", portA)
		heard("just after")
		settle()
		if got := r.messages(t, app.RecordFilter{MachineID: "m-1"}); fmt.Sprint(got) != "[just after just before before]" {
			t.Errorf("of the machine: %v", got)
		}
		if f := r.Facts(t.Context(), "m-1"); len(f.Ports) != 1 {
			t.Errorf("facts %+v", f)
		}
		r.Forget("m-1")
		heard("again nobody's")
		settle()
		if got := r.messages(t, app.RecordFilter{MachineID: "m-1"}); len(got) != 0 {
			t.Errorf("after it was forgotten: %v", got)
		}
		if got := r.messages(t, app.RecordFilter{MAC: portA}); len(got) != 1 {
			t.Errorf("of the port: %v", got)
		}
	})
}

// What was told just before the end is done: a machine that was accepted then has its past.
func TestTheEndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		r := run(t, recorder.Config{Open: onDisk(d)})
		synctest.Wait()
		r.Event(app.Event{Kind: "dhcp.heard", Message: "before", Data: []byte(`{"mac":"00:00:5e:00:53:01"}`)})
		r.Claim("m-1", portA)
		r.Record(of("m-1", "a.b", "after"))
		time.Sleep(time.Millisecond) // taken up, and waiting for more
		r.stop()
		if got, err := d.ListRecords(t.Context(), app.RecordFilter{MachineID: "m-1"}); err != nil || len(got) != 2 {
			t.Errorf("left %v, %v", got, err)
		}
	})
}

// Facts are read back from the file: an appliance that starts anew in mid-boot judges as it would have.
func TestVerdictsOutliveTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		first := run(t, recorder.Config{Open: onDisk(d)})
		shift := time.Since(epoch) - 200*time.Second
		for _, x := range toKernel().console(45, "Kernel panic - not syncing").out {
			x.ID, x.Time = 0, x.Time.Add(shift)
			first.Record(x)
		}
		settle()
		want := first.Verdict(t.Context(), "m-1")
		first.stop()
		second := run(t, recorder.Config{Open: onDisk(d)})
		defer second.stop()
		settle()
		got := second.Verdict(t.Context(), "m-1")
		if want == nil || got == nil || got.Code != want.Code || got.Code != recorder.CodeNoAgent || len(got.Console) != 1 {
			t.Errorf("before %+v\nafter  %+v", want, got)
		}
	})
}

func TestOldRecordsArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, recorder.Config{Keep: time.Hour})
		defer r.stop()
		r.Record(of("m-1", "a.b", "old"))
		time.Sleep(50 * time.Minute)
		r.Record(of("m-1", "a.b", "new"))
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		if got := r.messages(t, app.RecordFilter{MachineID: "m-1"}); fmt.Sprint(got) != "[new]" {
			t.Errorf("left %v", got)
		}
	})
}

// BenchmarkRecord is what netboot waits for with each exchange: while there is room, and while there is none.
func BenchmarkRecord(b *testing.B) {
	e := app.Event{Time: time.Now(), Kind: "dhcp.offer", Level: "info", MachineID: "m-1", Message: "Address 192.0.2.101 was offered.",
		Data: []byte(`{"mac":"00:00:5e:00:53:01","address":"192.0.2.101","request":"DISCOVER","stage":"firmware","file":"snponly.efi"}`)}
	for name, queue := range map[string]int{"room": 8192, "full": 1} {
		b.Run(name, func(b *testing.B) {
			var r *recorder.Recorder
			b.ReportAllocs()
			for i := range b.N {
				if i%8192 == 0 && (queue > 1 || r == nil) {
					b.StopTimer()
					r = recorder.New(recorder.Config{Log: slog.New(slog.DiscardHandler), Queue: queue})
					b.StartTimer()
				}
				r.Event(e)
			}
			if lost := r.Lost(); queue > 1 && lost > 0 {
				b.Errorf("%d were lost", lost)
			}
		})
	}
}
