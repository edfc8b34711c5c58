package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// maxBinary bounds a plugin's file, in bytes.
const maxBinary = 1 << 30

// ownExecutable is the running program itself, whatever stands at its path by now.
const ownExecutable = "/proc/self/exe"

// openHashed opens a plugin's file and hashes what the descriptor holds.
func openHashed(ctx context.Context, path string) (*os.File, string, error) {
	f, err := openOwn(path)
	if err != nil {
		return nil, "", err
	}
	return hashed(ctx, f)
}

// hashed gives an open file back at its start with its SHA-256, or closes it.
func hashed(ctx context.Context, f *os.File) (*os.File, string, error) {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(reader{ctx, f}, maxBinary+1))
	if err == nil && n > maxBinary {
		err = fmt.Errorf("it is larger than %d bytes", maxBinary)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, "", fmt.Errorf("hashing %s: %w", f.Name(), err)
	}
	return f, hex.EncodeToString(h.Sum(nil)), nil
}

// open opens a plugin's file and refuses it when it is not the pinned one. A bundled plugin is the program that runs, which
// the kernel lets nobody write (ETXTBSY) and which is opened as what runs, not by its path: it is what it was.
func (s source) open(ctx context.Context, dir string) (*os.File, error) {
	if s.bundled {
		f, err := os.Open(ownExecutable)
		if err != nil {
			return nil, fmt.Errorf("opening this program: %w", err)
		}
		return f, nil
	}
	if err := checkDir(dir); err != nil {
		return nil, refuse("%w", err)
	}
	f, sum, err := openHashed(ctx, filepath.Join(dir, s.pin.Name))
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, refuse("%w", err)
	}
	if sum != s.pin.SHA256 {
		f.Close()
		return nil, refuse("its file has SHA-256 %s, but %s is pinned", sum, s.pin.SHA256)
	}
	return f, nil
}

// reader is a reader that ends with a context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads while the context holds.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// ownerOf is the uid that owns a file.
func ownerOf(st os.FileInfo) (int, bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
