package site

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/bootiso"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/images/catalog"
)

// The boot listener serves the CD image of one boot below an address of its own, so that it is known which machine reads.
const (
	isoMount = "/iso/"
	isoName  = "/image.iso" // some BMCs want to see the ending
)

func isoPath(key string) string { return isoMount + key + isoName }

// Limits of what is kept of images that are being read.
const (
	maxISOReads = 1024
	isoKnown    = 2 * time.Second // how long what is known of a boot is used: a loader asks for some KiB at a time
	isoNoted    = 2 * time.Second // how often bytes are noted
	isoTold     = 1 << 20         // bytes of the first line on the timeline after the start; each later one at twice as many
)

// isoReads follows the CD images that machines, or their BMCs, read.
type isoReads struct {
	store  app.AgentStore
	images app.ImageStore
	open   func(ctx context.Context, rest string) (*os.File, error)
	signal func(machineID string)
	record func(app.Record)
	warn   func(msg string, args ...any)
	now    func() time.Time

	mu  sync.Mutex
	all map[string]*isoRead // by the boot's key
}

// isoRead is one boot's image.
type isoRead struct {
	boot   app.Boot
	image  app.Image
	looked time.Time // when the store was asked
	bytes  int64     // that left
	noted  int64     // of them, in the store
	at     time.Time // when
	told   int64     // bytes at which the timeline gets its next line
}

// Open opens a boot's image for the boot listener: rest is what follows "/iso/". A boot that is over gives fs.ErrNotExist.
func (r *isoReads) Open(ctx context.Context, rest string) (*os.File, error) {
	key, ok := strings.CutSuffix(rest, isoName)
	if !ok {
		return nil, fs.ErrNotExist
	}
	i, err := r.find(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.open(ctx, strings.TrimPrefix(catalog.ISOPath(i), "/images/"))
}

// find gives the image of a boot that is not over.
func (r *isoReads) find(ctx context.Context, key string) (*app.Image, error) {
	r.mu.Lock()
	if e := r.all[key]; e != nil && r.now().Sub(e.looked) < isoKnown {
		i := e.image
		r.mu.Unlock()
		return &i, nil
	}
	r.mu.Unlock()
	b, err := r.store.Boot(ctx, key)
	if err != nil {
		return nil, err
	}
	if b.ISO == "" || !b.Revoked.IsZero() {
		return nil, fs.ErrNotExist
	}
	i, err := r.images.Image(ctx, b.ISO)
	if err != nil {
		return nil, err
	}
	r.keep(b, i)
	return i, nil
}

func (r *isoReads) keep(b *app.Boot, i *app.Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil || len(r.all) >= maxISOReads {
		r.all = map[string]*isoRead{}
	}
	e := r.all[b.Key]
	if e == nil {
		e = &isoRead{bytes: b.Read, noted: b.Read}
		for e.told = 1; e.told <= b.Read; e.told = nextTold(e.told) {
		}
		r.all[b.Key] = e
	}
	e.boot, e.image, e.looked = *b, *i, r.now()
}

func nextTold(n int64) int64 { return max(2*n, isoTold) }

// Sent counts bytes that left. The first, those that show that the image was started, and from then on a sum every two
// seconds are noted where a restart finds them, and whoever waits is told.
func (r *isoReads) Sent(rest string, n int64) {
	key, _ := strings.CutSuffix(rest, isoName)
	r.mu.Lock()
	e := r.all[key]
	if e == nil {
		r.mu.Unlock()
		return
	}
	was := e.bytes
	e.bytes += n
	started := min(e.image.RawBytes, bootiso.Started)
	if now := r.now(); was == 0 || was < started && e.bytes >= started || now.Sub(e.at) >= isoNoted {
		e.at = now
	} else {
		r.mu.Unlock()
		return
	}
	x, tell := *e, e.bytes >= e.told
	for tell && e.told <= e.bytes {
		e.told = nextTold(e.told)
	}
	r.mu.Unlock()
	r.note(&x, was == 0, tell)
}

func (r *isoReads) note(x *isoRead, first, tell bool) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	if err := r.store.NoteRead(ctx, x.boot.Key, x.bytes); err != nil {
		r.warn("noting how much of an image was read", "machine", x.boot.MachineID, "error", err)
		return
	}
	r.signal(x.boot.MachineID)
	if tell {
		r.tell(x, first)
	}
}

// tell writes a line of the machine's timeline.
func (r *isoReads) tell(x *isoRead, first bool) {
	who := "Its loader"
	if x.boot.Media {
		who = "Its BMC"
	}
	msg := fmt.Sprintf("%s has read %.1f MiB of the ISO %s.", who, float64(x.bytes)/(1<<20), x.image.Name)
	if first {
		msg = fmt.Sprintf("%s began to read the ISO %s.", who, x.image.Name)
	}
	data, err := json.Marshal(map[string]int64{"bytes": x.bytes, "size": x.image.RawBytes})
	if err != nil {
		data = nil
	}
	r.record(app.Record{Time: r.now().UTC(), Kind: "iso.read", Level: "info", MachineID: x.boot.MachineID, Workflow: x.boot.WorkflowID, Message: msg, Data: data})
}

func (s *Site) newISOReads() *isoReads {
	return &isoReads{
		store: s.db, images: s.db, open: s.catalog.OpenIndex, record: s.recorder.Record, warn: s.log.Warn, now: now,
		signal: func(machineID string) { s.engine.Signal(machineID, bootiso.SignalRead, nil) },
	}
}

// isoUse names the machine that boots, or runs, a CD image.
func (s *Site) isoUse(ctx context.Context, imageID string) (string, error) {
	page, err := s.db.ListMachines(ctx, app.MachineFilter{States: []app.State{app.StateISO}, Limit: 1000})
	if err != nil {
		return "", err
	}
	for _, m := range page.Items {
		if m.ISO != nil && m.ISO.ImageID == imageID {
			return "machine " + m.Name + ", which runs from it", nil
		}
	}
	active, err := s.engine.List(ctx, workflow.Filter{Verb: bootiso.Verb, Active: true, Limit: 1000})
	if err != nil {
		return "", err
	}
	for _, w := range active {
		var in struct {
			ImageID string `json:"imageId"`
		}
		if json.Unmarshal(w.Input, &in) == nil && in.ImageID == imageID {
			return "machine " + w.MachineID + ", which boots from it", nil
		}
	}
	return "", nil
}

// mediaURL is where a machine's BMC reads the image of a boot: at our address as the BMC's network sees it.
func (s *Site) mediaURL(ctx context.Context, m *app.Machine, key string) (string, error) {
	a, err := s.addressForBMC(ctx, m)
	if err != nil {
		return "", err
	}
	return s.netboot.URL(a, isoPath(key)), nil
}
