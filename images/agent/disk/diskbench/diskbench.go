// Package diskbench measures how fast the agent writes an image, against the plainest way to do it by hand:
//
//	zstd -dc IMAGE.zst | dd of=TARGET bs=4M iflag=fullblock oflag=direct conv=fsync
//
// or, with the image coming over the network as it would, with curl before that pipe. Both write the same bytes to the same
// loop device, filled with 0xA5 before each run. The agent fetches its chunks from an HTTP server in the same process, checks
// and decompresses them, and its time ends when the disk has been flushed; dd checks nothing and ends with fsync. The
// read-back is measured apart: dd has none.
//
// It needs root and Debian's zstd, curl, mount (losetup) and coreutils.
package diskbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// Source is where the peer has its compressed image from.
type Source int

// The sources.
const (
	LocalFile Source = iota // a file in the page cache: no network, unlike the agent
	HTTP                    // the agent's own HTTP server, by curl
)

// Measure compares runs pairs of writes of the raw image at path. dir needs room for twice the image.
func Measure(ctx context.Context, image, dir string, runs int, from Source) (r Result, err error) {
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
	return b.compare(ctx, runs, func(ctx context.Context) (float64, float64, error) { return b.dd(ctx, from) })
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
func (b *bench) dd(ctx context.Context, from Source) (seconds, cpu float64, err error) {
	if err := b.dirty(); err != nil {
		return 0, 0, err
	}
	dd := exec.CommandContext(ctx, "dd", "of="+b.loop, "bs=4M", "iflag=fullblock", "oflag=direct", "conv=fsync", "status=none")
	if from == LocalFile {
		return pipeline(exec.CommandContext(ctx, "zstd", "-q", "-dc", b.zst), dd)
	}
	curl := exec.CommandContext(ctx, "curl", "--silent", "--show-error", "--fail", b.url+"/"+filepath.Base(b.zst))
	return pipeline(curl, exec.CommandContext(ctx, "zstd", "-q", "-dc"), dd)
}

// pipeline runs commands with each one's output in the next, and gives the seconds they took and processor seconds.
func pipeline(cmds ...*exec.Cmd) (seconds, cpu float64, err error) {
	var ends []*os.File
	defer func() {
		for _, f := range ends {
			f.Close()
		}
	}()
	for i := range cmds[1:] {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, 0, err
		}
		ends = append(ends, r, w)
		cmds[i].Stdout, cmds[i+1].Stdin = w, r
	}
	begin := time.Now()
	for i, c := range cmds {
		c.Stderr = new(strings.Builder)
		if err := c.Start(); err != nil {
			for _, started := range cmds[:i] {
				_ = started.Process.Kill()
				_ = started.Wait()
			}
			return 0, 0, err
		}
	}
	for _, f := range ends {
		f.Close()
	}
	var errs []error
	for _, c := range cmds {
		if err := c.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s", c.Args[0], err, c.Stderr))
		}
		cpu += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	}
	return time.Since(begin).Seconds(), cpu, errors.Join(errs...)
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
