// Package diskbench measures how fast the agent writes an image, against the plainest way to do it by hand:
//
//	zstd -dc IMAGE.zst | dd of=TARGET bs=4M iflag=fullblock oflag=direct conv=fsync
//
// Both write the same bytes to the same loop device, filled with 0xA5 before each run. The agent fetches its chunks from
// an HTTP server in the same process, checks and decompresses them, and its time ends when the disk has been flushed; dd
// reads a local file, checks nothing and ends with fsync. The read-back is measured apart: dd has none.
//
// It needs root and Debian's zstd, mount (losetup) and coreutils.
package diskbench

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Result is one comparison. Rates are raw image bytes per second, medians.
type Result struct {
	Ratio      float64 // Rate / Peer
	Rate       float64 // of the agent, to the end of the flush
	RateVerify float64 // of the agent, read-back included
	Peer       float64
	Pairs      [][2]float64 // rates of agent and peer in each run
	CPU        float64      // processor seconds of a run, of agent and HTTP server together; median
	CPUPeer    float64      // of the peer's processes
	Requests   int          // of the agent, in one run
	Wire       int64        // bytes fetched in one run
}

// Measure compares runs pairs of writes of the raw image at path. dir needs room for twice the image.
func Measure(ctx context.Context, image, dir string, runs int) (r Result, err error) {
	dir, err = os.MkdirTemp(dir, "diskbench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	b, err := newBench(dir, image)
	if err != nil {
		return r, err
	}
	defer b.close()
	if err := b.compress(ctx, image); err != nil {
		return r, err
	}
	return b.compare(ctx, runs, b.dd)
}

// compare takes turns of agent and peer, which gives the seconds to its flush and processor seconds.
func (b *bench) compare(ctx context.Context, runs int, peer func(context.Context) (float64, float64, error)) (r Result, err error) {
	var ours, verified, theirs, cpu, cpuPeer []float64
	for range runs {
		w, v, c, err := b.timed(ctx)
		if err != nil {
			return r, fmt.Errorf("writing by agent: %w", err)
		}
		d, cd, err := peer(ctx)
		if err != nil {
			return r, fmt.Errorf("writing by the peer: %w", err)
		}
		ours, verified, theirs, cpu, cpuPeer = append(ours, w), append(verified, v), append(theirs, d), append(cpu, c), append(cpuPeer, cd)
	}
	x := b.images[0].index
	size := float64(x.RawBytes)
	r = Result{Rate: size / median(ours), RateVerify: size / median(verified), Peer: size / median(theirs), CPU: median(cpu), CPUPeer: median(cpuPeer),
		Requests: len(x.Plan(chunk.DefaultLimits).Spans), Wire: b.wire}
	for i := range ours {
		r.Pairs = append(r.Pairs, [2]float64{size / ours[i], size / theirs[i]})
	}
	r.Ratio = r.Rate / r.Peer
	return r, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// cpuSeconds is what this process has used of the processors, in user and kernel mode.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for a wrong argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// timed gives the seconds to the end of the flush and to the end of the read-back, and processor seconds to the flush.
func (b *bench) timed(ctx context.Context) (write, verify, cpu float64, err error) {
	if err := b.dirty(); err != nil {
		return 0, 0, 0, err
	}
	begin, used := time.Now(), cpuSeconds()
	out, err := b.write(ctx, 0, nil, func(p agentv1.ProgressReport) {
		if p.Phase == "verify" && write == 0 {
			write, cpu = time.Since(begin).Seconds(), cpuSeconds()-used
		}
	})
	if err != nil {
		return 0, 0, 0, err
	}
	b.wire = out.BytesFetched
	return write, time.Since(begin).Seconds(), cpu, nil
}

// dd gives the seconds to the end of the flush, and processor seconds.
func (b *bench) dd(ctx context.Context) (seconds, cpu float64, err error) {
	if err := b.dirty(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	zstd := exec.CommandContext(ctx, "zstd", "-q", "-dc", b.zst)
	dd := exec.CommandContext(ctx, "dd", "of="+b.loop, "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync", "status=none")
	pr, pw, err := os.Pipe()
	if err != nil {
		return 0, 0, err
	}
	zstd.Stdout, dd.Stdin = pw, pr
	var text strings.Builder
	zstd.Stderr, dd.Stderr = &text, &text
	if err := zstd.Start(); err != nil {
		return 0, 0, err
	}
	if err := dd.Start(); err != nil {
		return 0, 0, err
	}
	pw.Close()
	pr.Close()
	if err := zstd.Wait(); err != nil {
		return 0, 0, fmt.Errorf("zstd: %w: %s", err, &text)
	}
	if err := dd.Wait(); err != nil {
		return 0, 0, fmt.Errorf("dd: %w: %s", err, &text)
	}
	for _, p := range []*os.ProcessState{zstd.ProcessState, dd.ProcessState} {
		cpu += (p.UserTime() + p.SystemTime()).Seconds()
	}
	return time.Since(begin).Seconds(), cpu, nil
}

// Dense writes a raw image of n bytes without a zero block, about half of it compressible, for Measure.
func Dense(w io.Writer, n int64) error {
	x := uint64(0x9E3779B97F4A7C15)
	b := make([]byte, 1<<20)
	for ; n > 0; n -= int64(len(b)) {
		for i := range b {
			if i%8 == 0 {
				x ^= x << 13
				x ^= x >> 7
				x ^= x << 17
			}
			b[i] = byte(x >> (8 * (i % 8)))
			if i&8192 != 0 {
				b[i] = byte(i>>4) | 1
			}
		}
		if _, err := w.Write(b[:min(n, int64(len(b)))]); err != nil {
			return err
		}
	}
	return nil
}
