package diskbench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Sent is what travels when a disk gets an image, in bytes.
type Sent struct {
	Used     int64 // stored bytes of the second image's chunks
	Full     int64 // sent for the second image to a foreign disk, its index included
	Redeploy int64 // to the disk that holds the first image, both indexes included
	Kept     int64 // raw bytes that lay in place
	Moved    int64 // raw bytes that were moved on the disk
	Seconds  [2]float64
}

// Redeploy writes the second of two raw images to a foreign disk, and to one that holds the first. Both ways end with the
// agent's read-back of every byte.
func Redeploy(ctx context.Context, first, second, dir string) (s Sent, err error) {
	dir, err = os.MkdirTemp(dir, "diskbench-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	b, err := newBench(dir, first, second)
	if err != nil {
		return s, err
	}
	defer b.close()
	quiet := func(agentv1.ProgressReport) {}
	if err := b.dirty(); err != nil {
		return s, err
	}
	full, err := b.write(ctx, 1, nil, quiet)
	if err != nil {
		return s, err
	}
	if err := b.dirty(); err != nil {
		return s, err
	}
	if _, err := b.write(ctx, 0, nil, quiet); err != nil {
		return s, err
	}
	again, err := b.write(ctx, 1, []int{0}, quiet)
	if err != nil {
		return s, err
	}
	return Sent{Used: b.images[1].index.StoredBytes(), Full: full.BytesFetched, Redeploy: again.BytesFetched,
		Kept: again.BytesKept, Moved: again.BytesMoved, Seconds: [2]float64{full.Seconds, again.Seconds}}, nil
}

// QemuImg compares runs pairs of writes of the raw image at path: by the agent, and by `qemu-img convert -O raw` of a qcow2
// image of it, with clusters compressed by zlib or not at all, and a flush of the device.
func QemuImg(ctx context.Context, image, dir string, compressed bool, runs int) (r Result, err error) {
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
	qcow2 := filepath.Join(dir, "image.qcow2")
	args := []string{"convert", "-f", "raw", "-O", "qcow2"}
	if compressed {
		args = append(args, "-c")
	}
	if out, err := exec.CommandContext(ctx, "qemu-img", append(args, image, qcow2)...).CombinedOutput(); err != nil {
		return r, fmt.Errorf("making a qcow2 image: %w: %s", err, out)
	}
	return b.compare(ctx, runs, func(ctx context.Context) (float64, float64, error) { return b.convert(ctx, qcow2) })
}

// convert gives the seconds to the end of the flush, and processor seconds.
func (b *bench) convert(ctx context.Context, qcow2 string) (seconds, cpu float64, err error) {
	if err := b.dirty(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow2, b.loop),
		exec.CommandContext(ctx, "sync", b.loop),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			return 0, 0, fmt.Errorf("%s: %w: %s", c, err, out)
		}
		cpu += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	}
	return time.Since(begin).Seconds(), cpu, nil
}
