package chunk

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
)

// Sum is the checksum of raw bytes that Chunk.Sum holds.
func Sum(raw []byte) uint64 { return xxhash.Sum64(raw) }

// ID is the first half of a BLAKE3 hash over a chunk's raw bytes.
type ID [16]byte

// Identify gives the ID of raw bytes: by it, bytes that lie on a disk already are trusted.
func Identify(raw []byte) ID {
	h := blake3.Sum256(raw)
	return ID(h[:])
}

// Decoder opens frames. It may be used by one goroutine at a time and holds about 1 MiB.
type Decoder struct {
	// SumLater leaves the xxHash64 to a caller that compares it anyway when it has written the bytes and reads them back.
	SumLater bool
	z        *zstd.Decoder
}

// NewDecoder makes a Decoder.
func NewDecoder() (*Decoder, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxChunkBytes), zstd.WithDecoderMaxWindow(MaxChunkBytes), zstd.IgnoreChecksum(true))
	if err != nil {
		return nil, fmt.Errorf("making zstd decoder: %w", err)
	}
	return &Decoder{z: z}, nil
}

// Close frees the decoder.
func (d *Decoder) Close() { d.z.Close() }

// Slack is how many bytes Open likes to overwrite after dst: without them the decompressor checks every copy and is slower
// by a third.
const Slack = 64

// Open checks the stored bytes of c against the index and decompresses them into dst, whose length must be c.Size. It
// checks twice: BLAKE3 over what travelled, xxHash64 over what came out of the decompressor (see SumLater). It may leave anything in
// slack bytes of dst's capacity after its length; 0 forbids that.
func (d *Decoder) Open(c *Chunk, stored, dst []byte, slack int) error {
	if len(stored) != int(c.Stored) || len(dst) != int(c.Size) {
		return fmt.Errorf("chunk at %d: %d stored bytes into %d, the index says %d into %d", c.Offset, len(stored), len(dst), c.Stored, c.Size)
	}
	if blake3.Sum256(stored) != c.Hash {
		return fmt.Errorf("chunk at %d: the BLAKE3 hash of its stored bytes differs from the index", c.Offset)
	}
	if c.Stored == c.Size {
		copy(dst, stored)
	} else {
		out, err := d.z.DecodeAll(stored, dst[:0:min(cap(dst), len(dst)+slack)])
		if err != nil {
			return fmt.Errorf("chunk at %d: decompressing: %w", c.Offset, err)
		}
		if len(out) != len(dst) {
			return fmt.Errorf("chunk at %d: decompresses to %d bytes, the index says %d", c.Offset, len(out), len(dst))
		}
		if &out[0] != &dst[0] {
			copy(dst, out)
		}
	}
	if !d.SumLater && Sum(dst) != c.Sum {
		return fmt.Errorf("chunk at %d: the checksum of its raw bytes differs from the index", c.Offset)
	}
	return nil
}

// encoder makes frames, one goroutine at a time.
type encoder struct{ z *zstd.Encoder }

func newEncoder(level zstd.EncoderLevel) (*encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(MaxChunkBytes), zstd.WithSingleSegment(true))
	if err != nil {
		return nil, fmt.Errorf("making zstd encoder: %w", err)
	}
	return &encoder{z}, nil
}

// frame gives the stored form of raw, in buf when it has room: a zstd frame, or raw itself when that saves nothing.
func (e *encoder) frame(raw, buf []byte) []byte {
	out := e.z.EncodeAll(raw, buf[:0])
	if len(out) >= len(raw)-len(raw)/32 {
		return append(out[:0], raw...)
	}
	return out
}
