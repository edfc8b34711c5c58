package commission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/images/agent/disk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// How disks are read.
const (
	readAtOnce  = 8       // disks; the rates are those of disks that are read beside each other
	readStep    = 1 << 20 // bytes
	readErrors  = 32      // after which a disk is bad enough
	readPatient = 5 * time.Second
)

// reading is what became of one disk.
type reading struct {
	disk    agentv1.Disk
	bytes   int64
	took    time.Duration
	slowest time.Duration // of one read
	errors  int
	err     error // that it could not be read at all
}

// diskRead reads each fixed disk from its beginning, past the kernel's cache. It opens them for reading only.
func (t *Tester) diskRead(ctx context.Context, r *run) error {
	disks, err := t.fixed(ctx, r)
	if err != nil {
		return err
	}
	seconds := time.Duration(r.with["seconds"] * float64(time.Second))
	most := int64(r.with["megabytes"] * 1e6)
	var done atomic.Int64
	began := time.Now()
	whole := int64((seconds * time.Duration((len(disks)+readAtOnce-1)/readAtOnce)).Seconds())
	stop := everySecond(ctx, func() {
		r.progress(int64(time.Since(began).Seconds()), whole, "s", fmt.Sprintf("%d MB read", done.Load()/1e6))
	})
	defer stop()
	turn := make(chan struct{}, readAtOnce)
	var wg sync.WaitGroup
	all := make([]reading, len(disks))
	for i, d := range disks {
		wg.Go(func() {
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return
			}
			all[i] = t.patiently(ctx, d, seconds, most, &done)
		})
	}
	wg.Wait()
	for _, got := range all {
		if got.disk.Name != "" {
			r.read(got)
		}
	}
	return ctx.Err()
}

// fixed lists the disks that belong to the machine. Why others are left out is noted.
func (t *Tester) fixed(ctx context.Context, r *run) ([]agentv1.Disk, error) {
	all, err := t.cfg.Disks(ctx)
	if err != nil {
		return nil, cannot("the disks of this machine cannot be listed: %v", err)
	}
	var out []agentv1.Disk
	for _, d := range all {
		switch {
		case d.Removable, d.Virtual, d.Bytes == 0:
		case d.Transport == "iscsi" || d.Transport == "fc" || d.Multipath:
			r.skip(d.Name, "is storage of the network")
		default:
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, cannot("this machine has no fixed disk")
	}
	return out, nil
}

// patiently reads a disk, and gives it up when it does not answer after the test's end: the kernel may retry for minutes.
func (t *Tester) patiently(ctx context.Context, d agentv1.Disk, seconds time.Duration, most int64, done *atomic.Int64) reading {
	short, cancel := context.WithTimeout(ctx, seconds)
	defer cancel()
	ended := make(chan reading, 1)
	go func() { ended <- readDisk(short, filepath.Join(t.cfg.Dev, d.Name), d, most, done) }()
	select {
	case got := <-ended:
		return got
	case <-short.Done():
	}
	timer := time.NewTimer(readPatient)
	defer timer.Stop()
	select {
	case got := <-ended:
		return got
	case <-timer.C:
		return reading{disk: d, errors: 1, err: fmt.Errorf("has not answered for more than %s", readPatient)}
	}
}

func readDisk(ctx context.Context, path string, d agentv1.Disk, most int64, done *atomic.Int64) (out reading) {
	out.disk = d
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) { // a file that stands in for a disk, on a file system without direct I/O
		f, err = os.Open(path)
	}
	if err != nil {
		out.err = err
		return out
	}
	defer f.Close()
	b, err := disk.Buffer(readStep)
	if err != nil {
		out.err = err
		return out
	}
	defer disk.Free(b)
	begun := time.Now()
	for off := int64(0); ctx.Err() == nil && out.errors < readErrors && (most == 0 || out.bytes < most); off += readStep {
		at := time.Now()
		n, err := unix.Pread(int(f.Fd()), b, off)
		out.slowest = max(out.slowest, time.Since(at))
		if errors.Is(err, syscall.EINTR) {
			off -= readStep
			continue
		}
		if err != nil {
			out.errors++
			continue
		}
		out.bytes += int64(n)
		done.Add(int64(n))
		if n < readStep { // the end
			break
		}
	}
	if out.took = time.Since(begun); out.bytes == 0 && out.errors == 0 && ctx.Err() == nil {
		out.err = io.ErrUnexpectedEOF
	}
	return out
}

// read judges what became of a disk.
func (r *run) read(got reading) {
	d := got.disk.Name
	if got.err != nil {
		r.did()
		r.text(d, "read", "%v", got.err)
		r.fail("%s %v", d, got.err)
		return
	}
	r.did()
	r.value(d, "read", "MB", float64(got.bytes)/1e6)
	r.atLeast(d, "rate", "MB/s", float64(got.bytes)/1e6/max(got.took.Seconds(), 1e-6), "minMBps")
	r.value(d, "slowest read", "ms", float64(got.slowest.Microseconds())/1000)
	r.atMost(d, "unreadable", "places", float64(got.errors), "maxErrors")
}
