package wipe

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
)

// sentinel is a planted block.
type sentinel struct {
	off  int64
	data []byte
}

// plant writes the sentinels and makes sure that they are on the medium.
func (t *target) plant() ([]sentinel, error) {
	var list []sentinel
	for _, off := range t.places() {
		s := sentinel{off, make([]byte, block)}
		_, _ = rand.Read(s.data) // crypto/rand.Read never fails
		list = append(list, s)
	}
	b, err := disk.Buffer(block)
	if err != nil {
		return nil, err
	}
	defer disk.Free(b)
	for _, s := range list {
		copy(b, s.data)
		if _, err := t.dev.WriteAt(b, s.off); err != nil {
			return nil, t.ioError("writing a sentinel to", s.off, err)
		}
	}
	if err := t.flush(); err != nil {
		return nil, err
	}
	for _, s := range list {
		if _, err := t.dev.ReadAt(b, s.off); err != nil {
			return nil, t.ioError("reading a sentinel from", s.off, err)
		}
		if !bytes.Equal(b[:block], s.data) {
			return nil, app.Errorf(app.Unavailable, "sentinel-not-planted", "%s does not give back what was written at offset %d, so no wipe of it can be proven", t.disk.Name, s.off).
				Do("take the disk out and destroy it")
		}
	}
	return list, nil
}

// places are the offsets of the sentinels: some in the first and last MiB, the very first and last block among them, and
// one at a random place of each 256th of the disk.
func (t *target) places() []int64 {
	size := t.dev.Size()
	last := (size - block) / int64(t.dev.SectorSize()) * int64(t.dev.SectorSize())
	seen := map[int64]bool{}
	var out []int64
	add := func(off int64) {
		// Two sentinels must not overlap: only multiples of the block are taken, and the last one.
		if off = min(off/block*block, last); off >= 0 && !seen[off] && (off == last || off+block <= last) {
			seen[off] = true
			out = append(out, off)
		}
	}
	add(0)
	if last > 0 {
		seen[last] = true
		out = append(out, last)
	}
	for range atEdges - 1 {
		add(random(min(edge, size)))
		add(size - 1 - random(min(edge, size)))
	}
	for i := range int64(sentinels) {
		add(size/sentinels*i + random(size/sentinels))
	}
	return out
}

// random is below n, or 0.
func random(n int64) int64 {
	if n <= 0 {
		return 0
	}
	var b [8]byte
	_, _ = rand.Read(b[:])
	return int64(binary.LittleEndian.Uint64(b[:]) % uint64(n))
}

// survived is bytes that a wipe left.
type survived struct {
	off  int64
	what string
}

func (s survived) Error() string { return fmt.Sprintf("%s at offset %d", s.what, s.off) }

// gone reads every sentinel's place, and gives survived where a part of one is still there. 64 bytes are part enough: by
// chance they come once in 2^512.
func (t *target) gone(planted []sentinel) error {
	const part = 64
	b, err := disk.Buffer(block)
	if err != nil {
		return err
	}
	defer disk.Free(b)
	for _, s := range planted {
		if _, err := t.dev.ReadAt(b, s.off); err != nil {
			return t.ioError("reading back", s.off, err)
		}
		for i := 0; i < block; i += part {
			if bytes.Equal(b[i:i+part], s.data[i:i+part]) {
				return survived{s.off + int64(i), "a sentinel"}
			}
		}
	}
	return nil
}

// prove reads every sentinel's place, the first and last MiB and a sample, and gives survived for what is not zero.
func (t *target) prove(planted []sentinel) error {
	b, err := disk.Buffer(edge)
	if err != nil {
		return err
	}
	defer disk.Free(b)
	size := t.dev.Size()
	check := func(off, n int64, what string) error {
		if _, err := t.dev.ReadAt(b[:n], off); err != nil {
			return t.ioError("reading back", off, err)
		}
		if i := bytes.IndexFunc(b[:n], func(r rune) bool { return r != 0 }); i >= 0 {
			return survived{off + int64(i), what}
		}
		return nil
	}
	for _, s := range planted {
		if err := check(s.off, block, "a sentinel"); err != nil {
			return err
		}
	}
	if err := errors.Join(check(0, min(edge, size), "bytes"), check(size-min(edge, size), min(edge, size), "bytes")); err != nil {
		return err
	}
	for range samples {
		off := mathrand.Int64N(max(1, size/block)) * block
		if err := check(off, min(block, size-off), "bytes"); err != nil {
			return err
		}
	}
	return nil
}
