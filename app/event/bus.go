package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/better-compute/bcd/app"
)

// Limits of one event and of the bus.
const (
	MaxMessage = 2000     // bytes of Message; longer ones are cut
	MaxData    = 64 << 10 // bytes of Data; larger or malformed ones are left out
	maxBatch   = 256      // events in one transaction
	flushTime  = 5 * time.Second
)

// KindDropped marks the notice that events were lost at this point.
const KindDropped = "bus.dropped"

// Config is what a bus needs.
type Config struct {
	Store app.EventStore   // required
	Log   *slog.Logger     // required
	Now   func() time.Time // default time.Now
	Queue int              // events waiting to be written, default 4096
}

// Bus takes events, writes them and hands them on. It is safe for concurrent use.
type Bus struct {
	store   app.EventStore
	log     *slog.Logger
	now     func() time.Time
	queue   chan app.Event
	dropped atomic.Int64

	writing sync.Mutex // held over store and publication, so that subscribers see rising ids
	mu      sync.Mutex // protects subs
	subs    map[*Subscription]struct{}
}

// New makes a bus. Nothing is written until Run.
func New(c Config) *Bus {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Queue <= 0 {
		c.Queue = 4096
	}
	return &Bus{store: c.Store, log: c.Log, now: c.Now, queue: make(chan app.Event, c.Queue), subs: map[*Subscription]struct{}{}}
}

// Emit queues an event and returns at once. When the queue is full the event is lost and counted.
func (b *Bus) Emit(e app.Event) {
	select {
	case b.queue <- b.clean(e):
	default:
		b.dropped.Add(1)
	}
}

// Record writes an event and returns when it is durable: for what an auditor must find.
func (b *Bus) Record(ctx context.Context, e app.Event) error {
	return b.write(ctx, []app.Event{b.clean(e)})
}

// Run writes queued events until ctx ends, then what is left.
func (b *Bus) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
			defer cancel()
			return b.flush(last)
		case e := <-b.queue:
			if err := b.write(ctx, b.batch(e)); err != nil && !errors.Is(err, context.Canceled) {
				b.log.Error("writing events", "error", err)
			}
		}
	}
}

// flush writes what is queued now.
func (b *Bus) flush(ctx context.Context) error {
	for {
		select {
		case e := <-b.queue:
			if err := b.write(ctx, b.batch(e)); err != nil {
				return fmt.Errorf("flushing events: %w", err)
			}
		default:
			return nil
		}
	}
}

// batch takes what is queued behind first, without waiting, and a notice of what was lost.
func (b *Bus) batch(first app.Event) []app.Event {
	out := []app.Event{first}
	for len(out) < maxBatch {
		select {
		case e := <-b.queue:
			out = append(out, e)
			continue
		default:
		}
		break
	}
	if n := b.dropped.Swap(0); n > 0 {
		out = append(out, notice(b.now(), n, "were lost because they came faster than they could be written"))
	}
	return out
}

func notice(at time.Time, n int64, why string) app.Event {
	return app.Event{Time: at.UTC(), Kind: KindDropped, Level: "warn", Actor: "system", Message: fmt.Sprintf("%d events %s", n, why)}
}

// write stores a batch and publishes it. A batch that cannot be stored is published all the same, without ids.
func (b *Bus) write(ctx context.Context, batch []app.Event) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	err := b.store.AddEvents(ctx, batch)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range batch {
		for s := range b.subs {
			s.offer(e)
		}
	}
	if err != nil {
		return fmt.Errorf("adding %d events: %w", len(batch), err)
	}
	return nil
}

// clean fills in time and level and bounds what the wire may have filled.
func (b *Bus) clean(e app.Event) app.Event {
	if e.Time.IsZero() {
		e.Time = b.now()
	}
	e.Time = e.Time.UTC()
	if e.Level == "" {
		e.Level = "info"
	}
	e.Message = clip(strings.ToValidUTF8(e.Message, "\uFFFD"), MaxMessage)
	if len(e.Data) > MaxData || (len(e.Data) > 0 && !json.Valid(e.Data)) {
		e.Data = nil
	}
	return e
}

// clip cuts s to at most n bytes at a rune's start.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
