package catalog

import (
	"context"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// meter writes the progress of an import into its row, once a second: the phase it is in, and how far in that.
type meter struct {
	quit chan struct{}
	wg   sync.WaitGroup

	mu          sync.Mutex // protects what follows
	phase       app.ImagePhase
	done, total int64 // bytes of the phase
}

// newMeter begins with the phase that receives the source, of total bytes, 0 if that is not known.
func (c *Catalog) newMeter(ctx context.Context, id string, total int64) *meter {
	m := &meter{quit: make(chan struct{}), phase: app.ImageReceiving, total: total}
	m.wg.Go(func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-m.quit:
				return
			}
			_, err := c.cfg.Store.UpdateImage(ctx, id, func(i *app.Image) error {
				if i.State == Importing {
					m.note(i)
				}
				return nil
			})
			if err != nil && ctx.Err() == nil && app.CodeOf(err) != app.NotFound {
				c.cfg.Log.Warn("progress of an import not written", "image", id, "err", err)
			}
		}
	})
	return m
}

// note writes how far it is into a row.
func (m *meter) note(i *app.Image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i.Phase, i.Done, i.Total = m.phase, m.done, m.total
}

// begin goes on to a phase of total bytes.
func (m *meter) begin(phase app.ImagePhase, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase, m.done, m.total = phase, 0, total
}

// expect says how many bytes the phase has.
func (m *meter) expect(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = total
}

// at says how many bytes of a phase are done. In another phase it counts for nothing: a pass may read what another has read.
func (m *meter) at(phase app.ImagePhase, done int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == phase {
		m.done = done
	}
}

// read says that another n bytes of an archive were read, while that is the phase.
func (m *meter) read(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == app.ImageReading {
		m.done = min(m.done+int64(n), m.total)
	}
}

// stored lets what observes the chunks of a disk say how far the disk is, too.
func (m *meter) stored(observe func(int64, []byte) error) func(int64, []byte) error {
	return func(off int64, raw []byte) error {
		m.at(app.ImageStoring, off+int64(len(raw)))
		return observe(off, raw)
	}
}

// stop returns when no more progress will be written.
func (m *meter) stop() {
	close(m.quit)
	m.wg.Wait()
}

// metered counts what is read of an archive.
type metered struct {
	io.ReaderAt
	m *meter
}

// ReadAt implements io.ReaderAt.
func (r metered) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	r.m.read(n)
	return n, err
}

// meteredFiles counts what is read of a directory's files.
type meteredFiles struct {
	fs.FS
	m *meter
}

// Open implements fs.FS.
func (d meteredFiles) Open(name string) (fs.File, error) {
	f, err := d.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return meteredFile{f, d.m}, nil
}

type meteredFile struct {
	fs.File
	m *meter
}

// Read implements io.Reader.
func (f meteredFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.m.read(n)
	return n, err
}
