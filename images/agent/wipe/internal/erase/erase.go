// Package erase lets disks erase themselves: NVMe Sanitize and Format NVM, ATA Sanitize and Security Erase, SCSI Sanitize.
//
// What a disk can do is read from it first; each method reads afterwards what the disk says of it. That the data is gone is
// for the caller to prove: a disk's word is not a proof.
package erase

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// poll is how often a disk is asked how far it is.
const poll = time.Second

// Progress tells how far a method is, from 0 to 1, and who says so.
type Progress func(done float64, note string)

// Method is one way in which a disk erases itself.
type Method struct {
	Name string // for certificates, such as "nvme-sanitize-crypto"
	Run  func(ctx context.Context, p Progress) error
}

// Ladder is what a disk can do, the surest first, and sentences on what it cannot and why.
type Ladder struct {
	Methods []Method
	Notes   []string
}

func (l *Ladder) add(name string, run func(context.Context, Progress) error) {
	l.Methods = append(l.Methods, Method{name, run})
}

func (l *Ladder) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// ErrUnsure is a method whose end is unknown: the disk may still be at it.
var ErrUnsure = errors.New("the disk does not say how the erasure ended")

// Drive is a disk that may be able to erase itself.
type Drive struct {
	f       *os.File
	clock   clock
	ladders func() Ladder
}

// clock waits between two questions to a disk; tests replace it.
type clock func(ctx context.Context, d time.Duration) error

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// meanwhile tells now and then how long a command that says nothing itself has taken, until the returned func.
func (c clock) meanwhile(ctx context.Context, tell func(sofar time.Duration)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(ended)
		for c(ctx, poll) == nil {
			tell(time.Since(begun))
		}
	}()
	return func() { cancel(); <-ended }
}

// Open opens a disk for its commands beside what else holds it open. It is nil for a disk of a kind that has none.
func Open(path string, d agentv1.Disk) (*Drive, error) {
	nvme, scsi := d.Transport == "nvme", strings.HasPrefix(d.Name, "sd")
	if !nvme && !scsi {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	out := &Drive{f: f, clock: wait}
	if nvme {
		out.ladders = func() Ladder { return nvmeLadder(passthrough.NVMeFile{File: f}, out.clock) }
	} else {
		out.ladders = func() Ladder { return scsiLadder(passthrough.SGFile{File: f}, out.clock) }
	}
	return out, nil
}

// Ladder reads what the disk can do. It changes nothing.
func (d *Drive) Ladder() Ladder { return d.ladders() }

// Close ends the use of the disk's commands.
func (d *Drive) Close() error { return d.f.Close() }
