package chunk

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// TestMeasure prints the figures of the package documentation for two builds of an image, given as "a.raw:b.raw".
func TestMeasure(t *testing.T) {
	pair := strings.Split(os.Getenv("BCD_CHUNK_IMAGES"), ":")
	if len(pair) != 2 {
		t.Skip("BCD_CHUNK_IMAGES is not set to two raw images: nothing to measure")
	}
	for _, p := range []Params{
		{16 << 10, 16 << 10, 64 << 10, 4 << 10},
		{8 << 10, 32 << 10, 128 << 10, 16 << 10},
		{16 << 10, 64 << 10, 256 << 10, 4 << 10},
		{16 << 10, 64 << 10, 256 << 10, 16 << 10},
		{16 << 10, 64 << 10, 256 << 10, 64 << 10},
		{32 << 10, 64 << 10, 256 << 10, 16 << 10},
		{32 << 10, 128 << 10, 512 << 10, 16 << 10},
		{64 << 10, 256 << 10, 1 << 20, 16 << 10},
	} {
		measure(t, p, pair[0], pair[1])
	}
}

func measure(t *testing.T, p Params, first, second string) {
	enc, err := newEncoder(zstd.SpeedBetterCompression)
	if err != nil {
		t.Fatal(err)
	}
	dec, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	seen := map[[32]byte]bool{}
	var n, fresh int
	var used, freshBytes, stored, freshStored int64
	var encTime, decTime, splitTime time.Duration
	for pass, path := range []string{first, second} {
		n, fresh, used, freshBytes, stored, freshStored = 0, 0, 0, 0, 0, 0
		encTime, decTime = 0, 0
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s := NewSplitter(f, p)
		var out, back []byte
		for {
			t0 := time.Now()
			_, data, err := s.Next()
			splitTime += time.Since(t0)
			if errors.Is(err, io.EOF) {
				break
			}
			id := sha256.Sum256(data)
			n++
			used += int64(len(data))
			t0 = time.Now()
			if pass == 0 || !seen[id] {
				out = enc.frame(data, out)
				encTime += time.Since(t0)
				if len(out) < len(data) {
					t0 = time.Now()
					back, _ = dec.DecodeAll(out, back[:0])
					decTime += time.Since(t0)
				}
				if !seen[id] {
					fresh++
					freshBytes += int64(len(data))
					freshStored += int64(len(out))
				}
				stored += int64(len(out))
			}
			seen[id] = true
		}
		f.Close()
		t.Logf("min %d avg %d max %d hole %d KiB, image %d: used %d MB, %d chunks (%d new), new bytes %.3f, new stored %.1f MB, encode %.0f MB/s, decode %.0f MB/s, split %.2f s",
			p.Min>>10, p.Avg>>10, p.Max>>10, p.Hole>>10, pass, used>>20, n, fresh, float64(freshBytes)/float64(used), float64(freshStored)/1e6,
			float64(freshBytes)/1e6/encTime.Seconds(), float64(freshBytes)/1e6/decTime.Seconds(), splitTime.Seconds())
	}
}
