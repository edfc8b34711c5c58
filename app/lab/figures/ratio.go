package figures

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/better-compute/bcd/images/agent/disk/diskbench"
)

// denseBytes is the size of the dense image.
const denseBytes = 1 << 30

// sparse compares the agent with dd on the image that machines get in the lab.
func (s *session) sparse(ctx context.Context) error {
	img, err := s.osImage(ctx)
	if err != nil {
		return err
	}
	return s.ratio(ctx, "deploy_ratio_sparse", img.Path, fmt.Sprintf("the Debian image, %d MiB used of %d MiB", img.Used>>20, img.RawBytes>>20))
}

// dense does so on an image without a zero block.
func (s *session) dense(ctx context.Context) error {
	path := filepath.Join(s.Work, "dense.raw")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	if err := diskbench.Dense(f, denseBytes); err != nil {
		return fmt.Errorf("making the dense image: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("making the dense image: %w", err)
	}
	return s.ratio(ctx, "deploy_ratio_dense", path, fmt.Sprintf("%d MiB without a zero block, half of it random", denseBytes>>20))
}

func (s *session) ratio(ctx context.Context, name, image, what string) error {
	s.say("%s: writing %s, %d times by the agent and %d times by dd", name, what, s.Ratios, s.Ratios)
	r, err := diskbench.Measure(ctx, image, s.Work, s.Ratios)
	if err != nil {
		return err
	}
	s.note("%s: write rate of the agent / of `zstd -dc IMG | dd of=TARGET bs=4M iflag=fullblock oflag=direct conv=fsync`; %s", name, what)
	s.note("%s: same loop device, filled with 0xA5 before each write, in turns, medians of %d: agent %.0f MB/s (%.0f with its read-back), dd %.0f MB/s; the agent fetches over HTTP and checks each chunk by BLAKE3, dd reads a file",
		name, s.Ratios, r.Rate/1e6, r.RateVerify/1e6, r.Peer/1e6)
	s.note("%s: MB/s of agent/dd in each turn: %s; processor seconds of one: %.2f with the HTTP server, %.2f by zstd and dd", name, pairs(r), r.CPU, r.CPUPeer)
	s.put(name, r.Ratio, 2)
	return nil
}
