package chunk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"

	"github.com/better-compute/bcd/app"
)

// Version of the index this package writes, and the only one it reads.
const Version = 2

// Limits of an index. A parser refuses what lies beyond them before it allocates.
const (
	MaxIndexBytes = 256 << 20
	MaxChunks     = 6 << 20
	MaxPacks      = 1 << 20
	MaxRawBytes   = 1 << 50
	MaxChunkBytes = 1 << 20 // raw bytes of one chunk
	maxMetaBytes  = MaxChunks * 20
)

const indexMagic = "bcdindex"

// PackID names a pack: the first half of the SHA-256 over the BLAKE3 hashes of its frames, in order.
type PackID [16]byte

// String is the file name of the pack, 32 hex digits.
func (p PackID) String() string { return hex.EncodeToString(p[:]) }

// ParsePackID reads the form String gives.
func ParsePackID(s string) (p PackID, err error) {
	if len(s) != 2*len(p) {
		return p, fmt.Errorf("pack name %.40q is not 32 hex digits", s)
	}
	b, err := hex.DecodeString(s)
	if err != nil || hex.EncodeToString(b) != s {
		return p, fmt.Errorf("pack name %.40q is not 32 lower-case hex digits", s)
	}
	copy(p[:], b)
	return p, nil
}

// Chunk is a piece of an image that is not all zeros, and where its stored form lies.
type Chunk struct {
	Offset  int64    // in the raw image, bytes, a multiple of Block
	Sum     uint64   // xxHash64 of the raw bytes, for read-back
	Size    uint32   // raw bytes, a multiple of Block
	Pack    uint32   // index into Index.Packs
	PackOff uint32   // of the frame in the pack, bytes
	Stored  uint32   // bytes of the frame; equal to Size when it is stored as it is, else it is one zstd frame
	Hash    [32]byte // BLAKE3 of the stored bytes: what travels
	ID      ID       // of the raw bytes: what a seed is trusted by
}

// End is the offset after the chunk.
func (c *Chunk) End() int64 { return c.Offset + int64(c.Size) }

// Index describes one raw image: its size and its chunks by rising offset. What no chunk covers is zero.
type Index struct {
	RawBytes int64 // exact size of the image; the last chunk may reach up to Block-1 zero bytes beyond it
	Packs    []PackID
	Chunks   []Chunk
}

// UsedBytes is the number of raw bytes the chunks hold.
func (x *Index) UsedBytes() (n int64) {
	for i := range x.Chunks {
		n += int64(x.Chunks[i].Size)
	}
	return n
}

// StoredBytes is the number of bytes an agent has to fetch.
func (x *Index) StoredBytes() (n int64) {
	for i := range x.Chunks {
		n += int64(x.Chunks[i].Stored)
	}
	return n
}

// Digest is the hex SHA-256 of an encoded index: what a signed command pins.
func Digest(encoded []byte) string {
	h := sha256.Sum256(encoded)
	return hex.EncodeToString(h[:])
}

// Encode gives the binary form. It is deterministic.
func (x *Index) Encode() ([]byte, error) {
	if err := x.check(); err != nil {
		return nil, err
	}
	meta := make([]byte, 0, len(x.Chunks)*8)
	prev := Chunk{}
	var expect int64 // pack offset after the previous frame
	for i := range x.Chunks {
		c := &x.Chunks[i]
		meta = binary.AppendUvarint(meta, uint64(c.Offset-prev.End())/Block)
		meta = binary.AppendUvarint(meta, uint64(c.Size/Block))
		meta = binary.AppendVarint(meta, int64(c.Pack)-int64(prev.Pack))
		if c.Pack != prev.Pack {
			expect = 0
		}
		meta = binary.AppendVarint(meta, int64(c.PackOff)-expect)
		meta = binary.AppendUvarint(meta, uint64(c.Stored))
		expect = int64(c.PackOff) + int64(c.Stored)
		prev = *c
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return nil, err
	}
	packed := enc.EncodeAll(meta, nil)
	out := make([]byte, 0, headerBytes+len(packed)+len(x.Packs)*16+len(x.Chunks)*sumsBytes)
	out = append(out, indexMagic...)
	out = binary.LittleEndian.AppendUint32(out, Version)
	out = binary.LittleEndian.AppendUint32(out, Block)
	out = binary.LittleEndian.AppendUint64(out, uint64(x.RawBytes))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(x.Packs)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(x.Chunks)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(meta)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(packed)))
	for _, p := range x.Packs {
		out = append(out, p[:]...)
	}
	out = append(out, packed...)
	for i := range x.Chunks {
		out = append(append(out, x.Chunks[i].Hash[:]...), x.Chunks[i].ID[:]...)
		out = binary.LittleEndian.AppendUint64(out, x.Chunks[i].Sum)
	}
	if len(out) > MaxIndexBytes {
		return nil, fmt.Errorf("the chunk index would be %d bytes long, the limit is %d", len(out), MaxIndexBytes)
	}
	return out, nil
}

const (
	headerBytes = 40
	sumsBytes   = 32 + 16 + 8 // of a chunk: Hash, ID, Sum
)

// ParseIndex reads what Encode wrote. Its errors say in what way the input is no index of this version; callers that show
// them to people wrap them. It never allocates more than a small multiple of len(b).
func ParseIndex(b []byte) (*Index, error) {
	if len(b) < headerBytes || string(b[:8]) != indexMagic {
		return nil, corrupt("it does not start as one")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != Version {
		return nil, app.Errorf(app.Unsupported, "chunk-index-version", "the chunk index has version %d, this build reads version %d", v, Version).
			Do("boot the machine again with the ramdisk of this appliance, or import the image again")
	}
	if n := binary.LittleEndian.Uint32(b[12:]); n != Block {
		return nil, corrupt("its block size is %d", n)
	}
	raw := binary.LittleEndian.Uint64(b[16:])
	packs, chunks := int(binary.LittleEndian.Uint32(b[24:])), int(binary.LittleEndian.Uint32(b[28:]))
	metaLen, packedLen := int(binary.LittleEndian.Uint32(b[32:])), int(binary.LittleEndian.Uint32(b[36:]))
	if raw > MaxRawBytes || packs > MaxPacks || chunks > MaxChunks || metaLen > maxMetaBytes || metaLen > chunks*20 {
		return nil, corrupt("a count in its header is beyond the limits")
	}
	if want := headerBytes + packs*16 + packedLen + chunks*sumsBytes; want != len(b) {
		return nil, corrupt("it is %d bytes long and its header describes %d", len(b), want)
	}
	x := &Index{RawBytes: int64(raw), Packs: make([]PackID, packs), Chunks: make([]Chunk, chunks)}
	rest := b[headerBytes:]
	for i := range x.Packs {
		copy(x.Packs[i][:], rest[i*16:])
	}
	rest = rest[packs*16:]
	meta, err := unpackMeta(rest[:packedLen], metaLen)
	if err != nil {
		return nil, err
	}
	if err := x.readMeta(meta); err != nil {
		return nil, err
	}
	rest = rest[packedLen:]
	for i := range x.Chunks {
		c, b := &x.Chunks[i], rest[i*sumsBytes:]
		c.Hash, c.ID, c.Sum = [32]byte(b), ID(b[32:]), binary.LittleEndian.Uint64(b[48:])
	}
	return x, x.check()
}

func unpackMeta(packed []byte, size int) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(size, 1<<10))))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	meta, err := dec.DecodeAll(packed, nil)
	if err != nil || len(meta) != size {
		return nil, corrupt("its table does not decompress to %d bytes", size)
	}
	return meta, nil
}

func (x *Index) readMeta(meta []byte) error {
	r := bytes.NewReader(meta)
	prev := Chunk{}
	var expect int64
	for i := range x.Chunks {
		gap, e1 := binary.ReadUvarint(r)
		size, e2 := binary.ReadUvarint(r)
		pack, e3 := binary.ReadVarint(r)
		move, e4 := binary.ReadVarint(r)
		stored, e5 := binary.ReadUvarint(r)
		if e1 != nil || e2 != nil || e3 != nil || e4 != nil || e5 != nil {
			return corrupt("its table is cut short")
		}
		if gap > MaxRawBytes/Block || size == 0 || size > MaxChunkBytes/Block || stored == 0 || stored > size*Block {
			return corrupt("chunk %d is beyond the limits", i)
		}
		p := int64(prev.Pack) + pack
		if p < 0 || p >= int64(len(x.Packs)) {
			return corrupt("chunk %d lies in pack %d of %d", i, p, len(x.Packs))
		}
		if pack != 0 {
			expect = 0
		}
		at := expect + move
		if at < 0 || at+int64(stored) > math.MaxUint32 {
			return corrupt("chunk %d lies outside its pack", i)
		}
		c := &x.Chunks[i]
		c.Offset, c.Size = prev.End()+int64(gap)*Block, uint32(size*Block)
		c.Pack, c.PackOff, c.Stored = uint32(p), uint32(at), uint32(stored)
		if c.End() > x.RawBytes+Block-1 {
			return corrupt("chunk %d ends after the image", i)
		}
		expect, prev = at+int64(stored), *c
	}
	if r.Len() != 0 {
		return corrupt("its table has %d bytes too many", r.Len())
	}
	return nil
}

// check holds what Encode and ParseIndex both promise.
func (x *Index) check() error {
	if x.RawBytes < 0 || x.RawBytes > MaxRawBytes || len(x.Packs) > MaxPacks || len(x.Chunks) > MaxChunks {
		return corrupt("it is beyond the limits")
	}
	var end int64
	for i := range x.Chunks {
		c := &x.Chunks[i]
		switch {
		case c.Offset < end || c.Offset%Block != 0 || c.Size == 0 || c.Size%Block != 0 || c.Size > MaxChunkBytes:
			return corrupt("chunk %d at %d of %d bytes is out of order or not aligned", i, c.Offset, c.Size)
		case c.End() > x.RawBytes+Block-1:
			return corrupt("chunk %d ends after the image", i)
		case int(c.Pack) >= len(x.Packs) || c.Stored == 0 || c.Stored > c.Size:
			return corrupt("chunk %d has no place in a pack", i)
		}
		end = c.End()
	}
	return nil
}

func corrupt(format string, args ...any) error {
	return app.Errorf(app.InvalidInput, "chunk-index-corrupt", "this is not a chunk index: %s", fmt.Sprintf(format, args...)).
		Do("import the image again")
}
