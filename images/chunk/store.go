package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// Store keeps packs in a directory, each file named by PackID.String. Its methods may be called concurrently.
type Store struct {
	dir string // of packs
	tmp string // on the same file system; a subdirectory per build
	log *slog.Logger

	mu sync.RWMutex // held for reading by builds, for writing by GC: a build may refer to any pack it saw
}

// OpenStore opens the packs of dir, which it makes when absent. tmp must be on the same file system; what is half-made
// lies only there.
func OpenStore(dir, tmp string, log *slog.Logger) (*Store, error) {
	for _, d := range []string{dir, tmp} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("opening chunk store: %w", err)
		}
	}
	return &Store{dir: dir, tmp: tmp, log: log}, nil
}

// Open opens a pack for reading.
func (s *Store) Open(id PackID) (*os.File, error) { return os.Open(filepath.Join(s.dir, id.String())) }

// ErrBusy is what GC gives while a build runs.
var ErrBusy = errors.New("a build is running")

// GC removes the packs that keep does not hold and gives their number and bytes. A build may refer to any pack it saw, so
// while one runs GC does nothing and gives ErrBusy; no build starts before GC returns.
func (s *Store) GC(keep func() (map[PackID]bool, error)) (packs int, bytes int64, err error) {
	if !s.mu.TryLock() {
		return 0, 0, ErrBusy
	}
	defer s.mu.Unlock()
	kept, err := keep()
	if err != nil {
		return 0, 0, err
	}
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, 0, fmt.Errorf("listing packs: %w", err)
	}
	var errs []error
	for _, d := range list {
		id, err := ParsePackID(d.Name())
		if err != nil || kept[id] {
			continue
		}
		info, err := d.Info()
		if err == nil {
			err = os.Remove(filepath.Join(s.dir, d.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing pack: %w", err))
			continue
		}
		packs++
		bytes += info.Size()
	}
	if packs > 0 {
		errs = append(errs, syncDir(s.dir))
	}
	return packs, bytes, errors.Join(errs...)
}

// place is where a known chunk may be: a row of a pack's table.
type place struct {
	pack  uint32 // index into lookup.packs
	entry uint32
}

// lookup finds chunks that the store holds, by the first eight bytes of their id and then, on disk, by the whole id.
type lookup struct {
	packs  []PackID
	tables []int64 // offset of each pack's table
	places map[uint64]place
	store  *Store

	mu    sync.Mutex
	files map[uint32]*os.File // a few open packs
}

func (s *Store) newLookup() (*lookup, error) {
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing packs: %w", err)
	}
	l := &lookup{places: map[uint64]place{}, store: s, files: map[uint32]*os.File{}}
	for _, d := range list {
		id, err := ParsePackID(d.Name())
		if err != nil {
			continue
		}
		if err := l.load(id); err != nil {
			s.log.Warn("chunks of a damaged pack are not shared", "pack", id.String(), "err", err)
		}
	}
	return l, nil
}

func (l *lookup) load(id PackID) error {
	f, err := l.store.Open(id)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	t, err := readTable(f, info.Size())
	if err != nil {
		return err
	}
	n := uint32(len(l.packs))
	l.packs, l.tables = append(l.packs, id), append(l.tables, t.at)
	for i := range t.count {
		l.places[binary.LittleEndian.Uint64(t.bytes[i*entryBytes:])] = place{n, uint32(i)}
	}
	return nil
}

// find gives the pack and row of a chunk, or reports false.
func (l *lookup) find(id [32]byte) (PackID, entry, bool) {
	p, ok := l.places[binary.LittleEndian.Uint64(id[:])]
	if !ok {
		return PackID{}, entry{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.files[p.pack]
	if f == nil {
		l.closeSome()
		var err error
		if f, err = l.store.Open(l.packs[p.pack]); err != nil {
			return PackID{}, entry{}, false
		}
		l.files[p.pack] = f
	}
	var b [entryBytes]byte
	var e entry
	if _, err := f.ReadAt(b[:], l.tables[p.pack]+int64(p.entry)*entryBytes); err != nil {
		return PackID{}, entry{}, false
	}
	e.read(b[:])
	return l.packs[p.pack], e, e.ID == id
}

// closeSome keeps the number of open packs small.
func (l *lookup) closeSome() {
	if len(l.files) >= 32 {
		l.close()
	}
}

func (l *lookup) close() {
	for n, f := range l.files {
		f.Close()
		delete(l.files, n)
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("syncing directory %s: %w", dir, err)
	}
	return nil
}
