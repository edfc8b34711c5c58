package chunk

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// PackBytes is where a pack is closed: frames of one image lie in it in image order, so that one Range request fetches
// many neighbours.
const PackBytes = 64 << 20

// A pack is frames back to back, then a table of them, then a footer: magic, version, count, table checksum.
const (
	packMagic  = "bcd-pack"
	entryBytes = 32 + 32 + 8 + 4 + 4 + 4
	footBytes  = 8 + 4 + 4 + 8
)

// entry is a row of a pack's table: what a later import needs to share the chunk. Agents never read it.
type entry struct {
	ID     [32]byte // BLAKE3 of the raw bytes
	Hash   [32]byte // BLAKE3 of the stored bytes
	Sum    uint64
	Size   uint32
	Off    uint32
	Stored uint32
}

func (e *entry) append(b []byte) []byte {
	b = append(append(b, e.ID[:]...), e.Hash[:]...)
	b = binary.LittleEndian.AppendUint64(b, e.Sum)
	b = binary.LittleEndian.AppendUint32(b, e.Size)
	b = binary.LittleEndian.AppendUint32(b, e.Off)
	return binary.LittleEndian.AppendUint32(b, e.Stored)
}

func (e *entry) read(b []byte) {
	copy(e.ID[:], b)
	copy(e.Hash[:], b[32:])
	e.Sum = binary.LittleEndian.Uint64(b[64:])
	e.Size = binary.LittleEndian.Uint32(b[72:])
	e.Off = binary.LittleEndian.Uint32(b[76:])
	e.Stored = binary.LittleEndian.Uint32(b[80:])
}

// packWriter fills one pack file. It is not safe for concurrent use.
type packWriter struct {
	f       *os.File
	w       *bufio.Writer
	size    int64
	entries []entry
	name    hash.Hash
}

func createPack(dir string) (*packWriter, error) {
	f, err := os.CreateTemp(dir, "pack-*")
	if err != nil {
		return nil, fmt.Errorf("creating pack: %w", err)
	}
	if err := f.Chmod(0o644); err != nil {
		return nil, fmt.Errorf("creating pack: %w", err)
	}
	return &packWriter{f: f, w: bufio.NewWriterSize(f, 1<<20), name: sha256.New()}, nil
}

// add appends a frame and gives its offset.
func (p *packWriter) add(e entry, stored []byte) (uint32, error) {
	e.Off, e.Stored = uint32(p.size), uint32(len(stored))
	if _, err := p.w.Write(stored); err != nil {
		return 0, fmt.Errorf("writing pack: %w", err)
	}
	p.size += int64(len(stored))
	p.entries = append(p.entries, e)
	p.name.Write(e.Hash[:])
	return e.Off, nil
}

// seal writes table and footer, syncs the file and renames it to its name in the same directory.
func (p *packWriter) seal() (id PackID, err error) {
	copy(id[:], p.name.Sum(nil))
	table := make([]byte, 0, len(p.entries)*entryBytes)
	for i := range p.entries {
		table = p.entries[i].append(table)
	}
	foot := append([]byte(packMagic), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(foot[8:], Version)
	foot = binary.LittleEndian.AppendUint32(foot, uint32(len(p.entries)))
	foot = binary.LittleEndian.AppendUint64(foot, Sum(table))
	for _, b := range [][]byte{table, foot} {
		if _, err := p.w.Write(b); err != nil {
			return id, fmt.Errorf("writing pack table: %w", err)
		}
	}
	if err := p.w.Flush(); err != nil {
		return id, fmt.Errorf("writing pack: %w", err)
	}
	if err := p.f.Sync(); err != nil {
		return id, fmt.Errorf("syncing pack: %w", err)
	}
	old := p.f.Name()
	if err := p.f.Close(); err != nil {
		return id, fmt.Errorf("closing pack: %w", err)
	}
	return id, os.Rename(old, filepath.Join(filepath.Dir(old), id.String()))
}

// packTable is the table of a pack on disk.
type packTable struct {
	at    int64 // offset of the table in the file
	count int
	bytes []byte
}

// readTable reads and checks the table of a pack of the given size.
func readTable(f io.ReaderAt, size int64) (*packTable, error) {
	foot := make([]byte, footBytes)
	if size < footBytes {
		return nil, fmt.Errorf("pack of %d bytes is cut short", size)
	}
	if _, err := f.ReadAt(foot, size-footBytes); err != nil {
		return nil, fmt.Errorf("reading pack footer: %w", err)
	}
	if string(foot[:8]) != packMagic || binary.LittleEndian.Uint32(foot[8:]) != Version {
		return nil, fmt.Errorf("pack has no footer of version %d", Version)
	}
	t := &packTable{count: int(binary.LittleEndian.Uint32(foot[12:]))}
	t.at = size - footBytes - int64(t.count)*entryBytes
	if t.at < 0 {
		return nil, fmt.Errorf("pack of %d bytes cannot hold %d frames", size, t.count)
	}
	t.bytes = make([]byte, t.count*entryBytes)
	if _, err := f.ReadAt(t.bytes, t.at); err != nil {
		return nil, fmt.Errorf("reading pack table: %w", err)
	}
	if Sum(t.bytes) != binary.LittleEndian.Uint64(foot[16:]) {
		return nil, fmt.Errorf("pack table is damaged")
	}
	return t, nil
}
