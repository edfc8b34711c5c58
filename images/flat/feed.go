package flat

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/better-compute/bcd/images/flat/internal/ext4"
)

// errChanged means that a layer is not what it was when it was first read.
var errChanged = errors.New("the archive changed while it was read")

// feed reads the content of files in their order, which is that of the layers and of the entries in them.
type feed struct {
	ctx    context.Context
	layers []Layer

	open    int // one more than the layer that is open, or was last
	in      io.ReadCloser
	tr      *tar.Reader
	ordinal int64 // of the next entry
	file    *ext4.Inode
	at      int64
}

// read fills b with the bytes of a file from at on.
func (f *feed) read(i *ext4.Inode, at int64, b []byte) error {
	if i != f.file {
		if err := f.find(i); err != nil {
			return err
		}
	}
	if at != f.at {
		return fmt.Errorf("reading a file at %d, not at %d", at, f.at)
	}
	n, err := io.ReadFull(f.tr, b)
	f.at += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errChanged
	}
	return err
}

// find goes on to a file's entry.
func (f *feed) find(i *ext4.Inode) error {
	layer, ordinal := int(i.Order>>layerShift), i.Order&(1<<layerShift-1)
	if f.open <= layer {
		if err := f.start(layer); err != nil {
			return err
		}
	}
	if f.open != layer+1 || ordinal < f.ordinal {
		return fmt.Errorf("reading entry %d of layer %d after entry %d of layer %d", ordinal, layer, f.ordinal, f.open-1)
	}
	for {
		h, err := f.tr.Next()
		if errors.Is(err, io.EOF) {
			return errChanged
		}
		if err != nil {
			return err
		}
		f.ordinal++
		if f.ordinal == ordinal+1 {
			if h.Size != i.Size {
				return errChanged
			}
			f.file, f.at = i, 0
			return nil
		}
	}
}

// start reads the rest of the layer that is open, so that its digest is checked, and opens another. Layers that no file is
// left of are not read again.
func (f *feed) start(layer int) error {
	if err := f.finish(); err != nil {
		return err
	}
	in, err := f.layers[layer].Open()
	if err != nil {
		return err
	}
	f.in, f.tr, f.ordinal, f.open = in, tar.NewReader(&counter{ctx: f.ctx, r: in}), 0, layer+1
	return nil
}

// finish reads the rest of the layer that is open.
func (f *feed) finish() error {
	if f.in == nil {
		return nil
	}
	_, err := io.Copy(io.Discard, &counter{ctx: f.ctx, r: f.in})
	return errors.Join(err, f.close())
}

func (f *feed) close() error {
	if f.in == nil {
		return nil
	}
	in := f.in
	f.in = nil
	return in.Close()
}
