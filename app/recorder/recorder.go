package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/app"
)

// KindDropped marks the place where records are missing.
const KindDropped = "recorder.dropped"

// Limits of the recorder.
const (
	DefaultQueue = 16_384
	DefaultKeep  = 30 * 24 * time.Hour
	maxBatch     = 1024                  // records in one transaction
	linger       = 50 * time.Millisecond // that a batch waits for more
	writeTime    = 10 * time.Second      // for one batch
	reopenEvery  = time.Minute           // while the file cannot be opened
	pruneEvery   = 10 * time.Minute      //
	maxLosers    = 4096                  // machines whose losses are counted apart
	maxPorts     = 16_384                // addresses remembered as a machine's
	maxFollowed  = 8_192                 // machines whose facts are held in memory
	factsPage    = 1000                  // records that a machine's facts are read back from
)

// Config is what a Recorder needs.
type Config struct {
	// Open opens the store; with anew it sets aside the file that is there. nil: records are held in memory only.
	Open  func(ctx context.Context, anew bool) (app.RecordStore, error)
	Names Names
	// Rivals lists the other DHCP servers that were heard; may be nil.
	Rivals func() []app.Rival
	Log    *slog.Logger     // required
	Now    func() time.Time // default time.Now
	Queue  int              // records waiting to be written, default DefaultQueue
	Keep   time.Duration    // how long records are kept, default DefaultKeep
}

// Recorder takes records and keeps them. It is safe for concurrent use.
type Recorder struct {
	cfg   Config
	queue chan item
	ready chan struct{}
	lost  atomic.Int64 // ever

	losing sync.Mutex       // protects losers
	losers map[string]int64 // by machine: lost since the last notice

	mu    sync.Mutex // protects what follows
	store app.RecordStore
	inMem bool  // store is a Memory in place of a file
	fault error // why records are not kept; nil: they are
	anew  error // why the file was begun anew since the start
	facts map[string]*Facts
	owner map[app.MAC]string // machines that claimed an address
	subs  map[*Subscription]struct{}
}

// item is a record, or something to be done in its place among them.
type item struct {
	record app.Record
	do     func(ctx context.Context)
}

// New makes a recorder. Nothing is stored until Run.
func New(c Config) *Recorder {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Queue <= 0 {
		c.Queue = DefaultQueue
	}
	if c.Keep <= 0 {
		c.Keep = DefaultKeep
	}
	return &Recorder{cfg: c, queue: make(chan item, c.Queue), ready: make(chan struct{}), losers: map[string]int64{}, store: &Memory{}, inMem: true,
		facts: map[string]*Facts{}, owner: map[app.MAC]string{}, subs: map[*Subscription]struct{}{}}
}

// Record queues a record and returns at once. One that finds the queue full is lost, and counted. One of no machine and no
// port is not kept.
func (r *Recorder) Record(x app.Record) {
	if x.MachineID == "" && x.MAC == "" && !networkKind(x.Kind) {
		return
	}
	if x.Time.IsZero() {
		x.Time = r.cfg.Now()
	}
	select {
	case r.queue <- item{record: x}:
	default:
		r.lose(x.MachineID)
	}
}

// Event records an event of a machine, or of a port that is nobody's. Others are not the recorder's.
func (r *Recorder) Event(e app.Event) {
	r.Record(app.Record{Time: e.Time, Kind: e.Kind, Level: e.Level, MachineID: e.MachineID, Workflow: e.Workflow, Actor: e.Actor, Message: e.Message, Data: e.Data})
}

// lose counts a record that found no room.
func (r *Recorder) lose(machineID string) {
	r.lost.Add(1)
	r.losing.Lock()
	defer r.losing.Unlock()
	if _, ok := r.losers[machineID]; ok || len(r.losers) < maxLosers {
		r.losers[machineID]++
	}
}

// Lost says how many records found no room since the start.
func (r *Recorder) Lost() int64 { return r.lost.Load() }

// Fault says why records are not kept in the file now, and why it was begun anew since the start; nil: all is well.
func (r *Recorder) Fault() (now, anew error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault, r.anew
}

// left makes the record that says how many are missing.
func (r *Recorder) left(like app.Record, n int64, why string) app.Record {
	return app.Record{Time: r.cfg.Now(), Kind: KindDropped, Level: "warn", MachineID: like.MachineID, MAC: like.MAC, Message: fmt.Sprintf("%d %s", n, why)}
}

// Ready is closed once Run has opened the store, or found that it cannot: from then on the past can be read.
func (r *Recorder) Ready() <-chan struct{} { return r.ready }

// Run stores what is queued until ctx ends, then what is left; it is called once. It never fails: a store that does not work
// is tried again.
func (r *Recorder) Run(ctx context.Context) error {
	r.open(ctx, false)
	close(r.ready)
	r.prune(ctx)
	tick := time.NewTicker(reopenEvery)
	defer tick.Stop()
	pruned := r.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
			defer cancel()
			r.flush(last)
			return r.close()
		case it := <-r.queue:
			r.take(ctx, r.batch(ctx, it))
		case <-tick.C:
			r.mu.Lock()
			closed := r.inMem
			r.mu.Unlock()
			if closed {
				r.open(ctx, false)
			}
			if now := r.cfg.Now(); now.Sub(pruned) >= pruneEvery || now.Before(pruned) {
				pruned = now
				r.prune(ctx)
			}
		}
	}
}

// open opens the store, if there is to be one. Until it is, records go to memory.
func (r *Recorder) open(ctx context.Context, anew bool) {
	if r.cfg.Open == nil {
		return
	}
	s, err := r.cfg.Open(ctx, anew)
	if err != nil {
		r.cfg.Log.Error("opening the flight recorder's file", "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault = err; err != nil {
		return
	}
	r.store, r.inMem = s, false
	if a, ok := s.(interface{ Aside() error }); ok && a.Aside() != nil {
		r.anew = a.Aside()
		r.cfg.Log.Error("the flight recorder's file was set aside and begun anew", "error", r.anew)
	}
	for id, f := range r.facts {
		if f.last = 0; f.Began.IsZero() { // ids are another file's now, and it may know more
			delete(r.facts, id)
		}
	}
}

// close closes the store; what comes later goes to memory.
func (r *Recorder) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.store
	r.store, r.inMem = &Memory{}, true
	if err := s.Close(); err != nil {
		return fmt.Errorf("closing the flight recorder's file: %w", err)
	}
	return nil
}

// batch takes what is queued behind first, for a short while.
func (r *Recorder) batch(ctx context.Context, first item) []item {
	out := append(make([]item, 0, 64), first)
	wait := time.NewTimer(linger)
	defer wait.Stop()
	for len(out) < maxBatch {
		select {
		case it := <-r.queue:
			out = append(out, it)
			continue
		case <-wait.C:
		case <-ctx.Done():
		}
		break
	}
	return out
}

// flush takes what is queued now.
func (r *Recorder) flush(ctx context.Context) {
	for {
		var out []item
		for len(out) < maxBatch && len(r.queue) > 0 {
			out = append(out, <-r.queue)
		}
		if len(out) == 0 {
			return
		}
		r.take(ctx, out)
	}
}

// take stores runs of records and does what stands between them. What was taken off the queue is done, though ctx may end.
func (r *Recorder) take(ctx context.Context, items []item) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*writeTime)
	defer cancel()
	var run []app.Record
	for _, it := range items {
		if it.do == nil {
			if x := r.own(clean(it.record, r.cfg.Now())); x.MachineID != "" || x.MAC != "" {
				run = append(run, x)
			}
			continue
		}
		r.put(ctx, run)
		run = nil
		it.do(ctx)
	}
	r.put(ctx, append(run, r.notices()...))
}

// own reads the port of a record of the network, and gives one that is nobody's to the machine that claimed the port.
func (r *Recorder) own(x app.Record) app.Record {
	if x.MAC == "" && len(x.Data) > 0 && networkKind(x.Kind) {
		x.MAC = portOf(x.Data)
	}
	if x.MachineID != "" || x.MAC == "" {
		return x
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x.MachineID = r.owner[x.MAC]
	return x
}

// notices tell machines what was lost of theirs.
func (r *Recorder) notices() []app.Record {
	r.losing.Lock()
	defer r.losing.Unlock()
	var out []app.Record
	for id, n := range r.losers {
		if id != "" {
			out = append(out, r.left(app.Record{MachineID: id}, n, "records were left out because they came faster than they could be written"))
		}
	}
	clear(r.losers)
	return out
}

// put stores a batch, learns its facts and hands it on. A batch that cannot be stored is handed on all the same, without ids.
func (r *Recorder) put(ctx context.Context, batch []app.Record) {
	if len(batch) == 0 {
		return
	}
	wctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	r.mu.Lock()
	s := r.store
	r.mu.Unlock()
	err := s.AddRecords(wctx, batch)
	if err != nil {
		for i := range batch { // what was rolled back has no id
			batch[i].ID = 0
		}
	}
	r.wrote(err)
	r.mu.Lock()
	for i := range batch {
		r.learn(wctx, &batch[i])
		for sub := range r.subs {
			sub.offer(batch[i])
		}
	}
	r.mu.Unlock()
	if e, ok := app.AsError(err); ok && e.Reason == reasonDamaged {
		r.anewFile(ctx, err)
	}
}

// reasonDamaged is the reason of a store's error that beginning the file anew mends.
const reasonDamaged = "store-damaged"

// wrote notes whether records are kept, and logs when that changes.
func (r *Recorder) wrote(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && r.fault == nil:
		r.cfg.Log.Error("the flight recorder cannot write", "error", err)
	case err == nil && r.fault != nil && !r.inMem:
		r.cfg.Log.Info("the flight recorder writes again")
	}
	if !r.inMem {
		r.fault = err
	}
}

// anewFile sets the damaged file aside and begins another.
func (r *Recorder) anewFile(ctx context.Context, why error) {
	if err := r.close(); err != nil {
		r.cfg.Log.Warn("closing a damaged file", "error", err)
	}
	r.open(ctx, true)
	r.mu.Lock()
	r.anew = why
	r.mu.Unlock()
}

// prune drops what is older than Keep.
func (r *Recorder) prune(ctx context.Context) {
	r.mu.Lock()
	s := r.store
	r.mu.Unlock()
	n, err := s.PruneRecords(ctx, r.cfg.Now().Add(-r.cfg.Keep))
	if err != nil && !errors.Is(err, context.Canceled) {
		r.cfg.Log.Warn("pruning the flight recorder", "error", err)
	}
	if n > 0 {
		r.cfg.Log.Info("flight recorder pruned", "records", n)
	}
}
