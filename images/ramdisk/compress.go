package ramdisk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// DefaultLevel is the zstd level of an initramfs.
const DefaultLevel = 19

// compressor writes one zstd frame. The Go encoder's best level gives a seventh more bytes than the zstd program's 19 on
// kernel modules (16.0 MB against 13.9), so the program is used where it is installed and the manifest says which one wrote the archive.
type compressor struct {
	tool  string // path of the zstd program; "" is the Go encoder
	level int
}

func newCompressor(level int) compressor {
	if level == 0 {
		level = DefaultLevel
	}
	tool, err := exec.LookPath("zstd")
	if err != nil {
		tool = ""
	}
	return compressor{tool: tool, level: level}
}

func (c compressor) String() string {
	if c.tool == "" {
		return "zstd (Go encoder, best)"
	}
	return "zstd -" + strconv.Itoa(c.level)
}

// compress copies what write emits to w as one frame.
func (c compressor) compress(ctx context.Context, w io.Writer, write func(io.Writer) error) error {
	if c.tool == "" {
		return c.encode(w, write)
	}
	// The number of workers must be fixed at one or more: then the output does not depend on it.
	args := []string{"-q", "-c", "-T2", "-" + strconv.Itoa(c.level)}
	if c.level > 19 {
		args = append(args, "--ultra")
	}
	cmd := exec.CommandContext(ctx, c.tool, args...)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting zstd: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting zstd: %w", err)
	}
	werr := write(in)
	in.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("compressing with zstd: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return werr
}

func (c compressor) encode(w io.Writer, write func(io.Writer) error) error {
	e, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(8<<20))
	if err != nil {
		return fmt.Errorf("starting the zstd encoder: %w", err)
	}
	if err := write(e); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	return nil
}
