package event

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
)

type memory struct {
	batches [][]app.Event
	last    int64
	err     error
	gate    chan struct{}
}

func (m *memory) AddEvents(_ context.Context, e []app.Event) error {
	if m.gate != nil {
		<-m.gate
	}
	if m.err != nil {
		return m.err
	}
	for i := range e {
		m.last++
		e[i].ID = m.last
	}
	m.batches = append(m.batches, e)
	return nil
}

func (m *memory) ListEvents(context.Context, app.EventFilter) ([]app.Event, error) { return nil, nil }

func TestBusWritesInBatchesAndPublishesWithIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		b := New(Config{Store: m, Log: slog.New(slog.DiscardHandler)})
		s := b.Subscribe(Filter{MachineID: "m-1", Kind: "bmc."}, 8)
		defer s.Close()
		b.Emit(app.Event{Kind: "bmc.power", MachineID: "m-1", Message: "on"})
		b.Emit(app.Event{Kind: "bmc.power", MachineID: "m-2", Message: "on"})
		b.Emit(app.Event{Kind: "dhcp.offer", MachineID: "m-1", Message: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		synctest.Wait()
		if len(m.batches) != 1 || len(m.batches[0]) != 3 {
			t.Fatalf("batches = %v", m.batches)
		}
		e := <-s.C
		if e.ID != 1 || e.Level != "info" || e.Time.IsZero() || len(s.C) != 0 {
			t.Errorf("event = %+v, %d more", e, len(s.C))
		}
		b.Emit(app.Event{Kind: "late"})
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if m.last != 4 {
			t.Errorf("%d events written at the end, want 4", m.last)
		}
	})
}

func TestSlowReaderAndFullQueueAreToldWhatIsMissing(t *testing.T) {
	m := &memory{}
	b := New(Config{Store: m, Log: slog.New(slog.DiscardHandler), Queue: 2})
	s := b.Subscribe(Filter{}, 3)
	for range 5 {
		b.Emit(app.Event{Kind: "k"}) // 3 do not fit the queue
	}
	if err := b.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.batches[0][2]; got.Kind != KindDropped || !strings.HasPrefix(got.Message, "3 events") {
		t.Errorf("notice = %+v", got)
	}
	for range 4 {
		if err := b.Record(t.Context(), app.Event{Kind: "more"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		<-s.C
	}
	_ = b.Record(t.Context(), app.Event{Kind: "after"})
	if e := <-s.C; e.Kind != KindDropped || !strings.HasPrefix(e.Message, "4 events") {
		t.Errorf("first after the gap = %+v", e)
	}
	if e := <-s.C; e.Kind != "after" {
		t.Errorf("second after the gap = %+v", e)
	}
	s.Close()
	_ = b.Record(t.Context(), app.Event{Kind: "x"})
	if len(s.C) != 0 {
		t.Error("a closed subscription still receives")
	}
}

func TestHostileEventsAreBounded(t *testing.T) {
	m := &memory{}
	b := New(Config{Store: m, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(5, 0) }})
	for _, e := range []app.Event{
		{Message: strings.Repeat("é", MaxMessage)},
		{Message: "a\xffb", Data: json.RawMessage(`{"a":`)},
		{Data: json.RawMessage(`"` + strings.Repeat("x", MaxData) + `"`)},
	} {
		if err := b.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.batches[0][0].Message); n > MaxMessage+3 {
		t.Errorf("message of %d bytes", n)
	}
	if got := m.batches[1][0]; got.Message != "a\uFFFDb" || got.Data != nil {
		t.Errorf("event = %+v", got)
	}
	if m.batches[2][0].Data != nil {
		t.Error("oversized data kept")
	}
}

func TestStoreFailureIsReportedAndStillPublished(t *testing.T) {
	m := &memory{err: errors.New("disk is gone")}
	b := New(Config{Store: m, Log: slog.New(slog.DiscardHandler)})
	s := b.Subscribe(Filter{}, 4)
	defer s.Close()
	if err := b.Record(t.Context(), app.Event{Kind: "k"}); !errors.Is(err, m.err) {
		t.Errorf("error = %v", err)
	}
	if e := <-s.C; e.Kind != "k" || e.ID != 0 {
		t.Errorf("event = %+v", e)
	}
}
