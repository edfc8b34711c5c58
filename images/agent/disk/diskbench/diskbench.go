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
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Result is one comparison. Rates are raw image bytes per second, medians.
type Result struct {
	Ratio      float64 // Rate / DD
	Rate       float64 // of the agent, to the end of the flush
	RateVerify float64 // of the agent, read-back included
	DD         float64
	Pairs      [][2]float64 // rates of agent and dd in each run
	CPU, CPUDD float64      // processor seconds of a run: of agent and HTTP server together, of zstd and dd; medians
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
	b := &bench{dir: dir}
	if err := b.prepare(ctx, image); err != nil {
		return r, err
	}
	defer b.close()
	var ours, verified, dd, cpu, cpuDD []float64
	for range runs {
		w, v, c, err := b.agent(ctx)
		if err != nil {
			return r, fmt.Errorf("writing by agent: %w", err)
		}
		d, cd, err := b.dd(ctx)
		if err != nil {
			return r, fmt.Errorf("writing by dd: %w", err)
		}
		ours, verified, dd, cpu, cpuDD = append(ours, w), append(verified, v), append(dd, d), append(cpu, c), append(cpuDD, cd)
	}
	size := float64(b.index.RawBytes)
	r = Result{Rate: size / median(ours), RateVerify: size / median(verified), DD: size / median(dd), CPU: median(cpu), CPUDD: median(cpuDD),
		Requests: len(b.index.Plan(chunk.DefaultLimits).Spans), Wire: b.wire}
	for i := range ours {
		r.Pairs = append(r.Pairs, [2]float64{size / ours[i], size / dd[i]})
	}
	r.Ratio = r.Rate / r.DD
	return r, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

type bench struct {
	dir, zst, loop string
	index          *chunk.Index
	digest         string
	server         *http.Server
	url            string
	wire           int64
}

// prepare imports the image, compresses it as a person would (zstd -3), and makes the loop device.
func (b *bench) prepare(ctx context.Context, image string) error {
	store, err := chunk.OpenStore(filepath.Join(b.dir, "packs"), filepath.Join(b.dir, "tmp"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	build, err := store.NewBuild()
	if err != nil {
		return err
	}
	defer build.Discard()
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := build.Add(ctx, f, nil); err != nil {
		return err
	}
	b.index = build.Index()
	enc, err := b.index.Encode()
	if err != nil {
		return err
	}
	b.digest = chunk.Digest(enc)
	if err := build.Commit(func() error { return os.WriteFile(filepath.Join(b.dir, "index"), enc, 0o644) }); err != nil {
		return err
	}
	b.zst = filepath.Join(b.dir, "image.zst")
	if out, err := exec.CommandContext(ctx, "zstd", "-q", "-3", "-T0", image, "-o", b.zst).CombinedOutput(); err != nil {
		return fmt.Errorf("compressing: %w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "disk"), nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(filepath.Join(b.dir, "disk"), b.index.RawBytes+4<<20); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", filepath.Join(b.dir, "disk")).Output()
	if err != nil {
		return fmt.Errorf("making loop device: %w", err)
	}
	b.loop = strings.TrimSpace(string(out))
	return b.serve()
}

func (b *bench) serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.url = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/packs/", http.FileServer(http.Dir(b.dir)))
	mux.HandleFunc("/images/x/index", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(b.dir, "index"))
	})
	b.server = &http.Server{Handler: mux}
	go func() { _ = b.server.Serve(l) }()
	return nil
}

func (b *bench) close() {
	if b.server != nil {
		b.server.Close()
	}
	if b.loop != "" {
		_ = exec.Command("losetup", "-d", b.loop).Run()
	}
}

// dirty fills the target, so that neither way profits from holes in the file behind the loop device.
func (b *bench) dirty() error {
	f, err := os.OpenFile(filepath.Join(b.dir, "disk"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	block := bytes.Repeat([]byte{0xA5}, 1<<20)
	size := b.index.RawBytes + 4<<20
	for off := int64(0); off < size; off += int64(len(block)) {
		if _, err := f.WriteAt(block[:min(size-off, int64(len(block)))], off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// cpuSeconds is what this process has used of the processors, in user and kernel mode.
func cpuSeconds() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for a wrong argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// agent gives the seconds to the end of the flush and to the end of the read-back, and processor seconds to the flush.
func (b *bench) agent(ctx context.Context) (write, verify, cpu float64, err error) {
	if err := b.dirty(); err != nil {
		return 0, 0, 0, err
	}
	d := agentv1.Disk{Name: filepath.Base(b.loop), Serial: "BENCH", Bytes: b.index.RawBytes + 4<<20, SectorSize: 512}
	w := disk.New(disk.Config{BootURLs: []string{b.url}, Log: slog.New(slog.DiscardHandler),
		Disks: func(context.Context) ([]agentv1.Disk, error) { return []agentv1.Disk{d}, nil }})
	begin, used := time.Now(), cpuSeconds()
	out, err := w.Write(ctx, agentv1.Write{Disk: agentv1.DiskTarget{Serial: "BENCH"}, IndexURL: "/images/x/index", IndexSHA256: b.digest,
		RawBytes: b.index.RawBytes}, func(p agentv1.ProgressReport) {
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
