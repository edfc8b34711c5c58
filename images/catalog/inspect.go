package catalog

import (
	"errors"
	"fmt"
	"io"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
	"github.com/better-compute/bcd/images/layout"
)

// inspect reads the layout of a built image and finds images that were cut short.
func inspect(x *chunk.Index, b *chunk.Build) (app.Layout, error) {
	r, err := chunk.NewReader(x, b.Open)
	if err != nil {
		return app.Layout{}, err
	}
	defer r.Close()
	if err := noFooter(r, x.RawBytes); err != nil {
		return app.Layout{}, err
	}
	l := layout.Detect(r, x.RawBytes, 0)
	if l.Table == "none" && len(l.Partitions) == 0 {
		return l, errNotDisk
	}
	var need int64
	if l.Table == "gpt" {
		g, err := layout.ReadGPT(r, x.RawBytes, l.SectorSize)
		if err != nil {
			return l, err
		}
		if g.Alternate < 0 || g.Alternate > chunk.MaxRawBytes/int64(l.SectorSize) {
			g.Alternate = chunk.MaxRawBytes / int64(l.SectorSize)
		}
		need = (g.Alternate + 1) * int64(l.SectorSize)
	}
	for _, p := range l.Partitions {
		need = max(need, p.Start+p.Size)
	}
	if need > x.RawBytes {
		return l, app.Errorf(app.InvalidInput, "image-truncated", "the partition table describes a disk of at least %d bytes, the image has %d", need, x.RawBytes).
			Do("fetch the image again: it was cut short")
	}
	return l, nil
}

// noFooter refuses a fixed Virtual PC disk: a raw disk, and behind it a footer that says so.
func noFooter(r io.ReaderAt, size int64) error {
	b := make([]byte, 512)
	if size < 512 {
		return nil
	}
	if _, err := r.ReadAt(b, size-512); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the end of the image: %w", err)
	}
	if string(b[:8]) != "conectix" {
		return nil
	}
	return refused("a Virtual PC disk (VHD) of fixed size", convert)
}
