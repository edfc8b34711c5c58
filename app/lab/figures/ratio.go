package figures

import (
	"context"
	"errors"
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
	return s.ratio(ctx, "deploy_ratio_sparse", img.Path, fmt.Sprintf("the Debian image, %d MiB used of %d MiB", img.Used>>20, img.RawBytes>>20), diskbench.LocalFile)
}

// dense does so on an image without a zero block: with dd's image in a local file, and coming by HTTP as the agent's does.
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
	what := fmt.Sprintf("%d MiB without a zero block, half of it random", denseBytes>>20)
	return errors.Join(
		s.ratio(ctx, "deploy_ratio_dense", path, what, diskbench.LocalFile),
		s.ratio(ctx, "deploy_ratio_dense_http", path, what, diskbench.HTTP),
	)
}

func (s *session) ratio(ctx context.Context, name, image, what string, from diskbench.Source) error {
	peer, difference := "zstd -dc IMG", "dd reads a file"
	if from == diskbench.HTTP {
		peer, difference = "curl URL | zstd -dc", "so does dd's curl, from the same server, and nothing is checked"
	}
	s.say("%s: writing %s, %d times by the agent and %d times by dd", name, what, s.Ratios, s.Ratios)
	r, err := diskbench.Measure(ctx, image, s.Work, s.Ratios, from)
	if err != nil {
		return err
	}
	s.note("%s: write rate of the agent / of `%s | dd of=TARGET bs=4M iflag=fullblock oflag=direct conv=fsync`; %s", name, peer, what)
	s.note("%s: same loop device, filled with 0xA5 before each write, in turns, medians of %d: agent %.0f MB/s (%.0f with its read-back), dd %.0f MB/s; the agent fetches over HTTP and checks each chunk by BLAKE3, %s",
		name, s.Ratios, r.Rate/1e6, r.RateVerify/1e6, r.Peer/1e6, difference)
	s.note("%s: MB/s of agent/dd in each turn: %s; processor seconds of one: %.2f with the HTTP server, %.2f by the peer's commands", name, pairs(r), r.CPU, r.CPUPeer)
	s.put(name, r.Ratio, 2)
	return nil
}
