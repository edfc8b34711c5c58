// Package erase lets disks erase themselves: NVMe Sanitize and Format NVM, ATA Sanitize and Security Erase, SCSI Sanitize.
//
// What a disk can do is read from it first; each method reads afterwards what the disk says of it. That the data is gone is
// for the caller to prove: a disk's word is not a proof.
//
// What of this was tested on data of real drives, and what only on data written from the specifications, stands in
// images/agent/internal/passthrough/replay/captured/README.md.
package erase

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	Shared  []Method // those that erase all namespaces of an NVMe drive with several
	Among   int      // namespaces of such a drive
}

func (l *Ladder) add(name string, run func(context.Context, Progress) error) {
	l.Methods = append(l.Methods, Method{name, run})
}

func (l *Ladder) share(name string, run func(context.Context, Progress) error) {
	l.Shared = append(l.Shared, Method{name, run})
}

func (l *Ladder) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// ErrUnsure is a method whose end is unknown: the disk may still be at it.
var ErrUnsure = errors.New("the disk does not say how the erasure ended")

// patience is how long a disk at work may stay at the same place. Those that go on move every few seconds or minutes.
const patience = 2 * time.Hour

// standstill tells a disk that is at work for ever from one that gets further: some say for days that they sanitize themselves
// and have done one percent.
type standstill struct {
	limit, since time.Duration
	done         float64
}

// at takes what the disk says, once per poll; an error is ErrUnsure.
func (s *standstill) at(done float64) error {
	s.since += poll
	if done != s.done {
		s.done, s.since = done, 0
	}
	if s.since <= s.limit {
		return nil
	}
	return fmt.Errorf("%w: it says that it is at work and has stayed at %.0f %% for %s; leave it powered and wipe again later, or destroy it", ErrUnsure, 100*done, s.limit)
}

// Drive is a disk that may be able to erase itself.
type Drive struct {
	c      io.Closer
	ladder func() Ladder
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
	if nvme {
		return OnNVMe(passthrough.NVMeFile{File: f}, f), nil
	}
	return OnSCSI(passthrough.SGFile{File: f}, f), nil
}

// OnNVMe is a disk behind a port for NVMe commands. Closing it closes c.
func OnNVMe(p passthrough.NVMe, c io.Closer) *Drive {
	return &Drive{c, func() Ladder { return nvmeLadder(p, wait) }}
}

// OnSCSI is a disk behind a port for SCSI commands, ATA disks among them. Closing it closes c.
func OnSCSI(p passthrough.SCSI, c io.Closer) *Drive {
	return &Drive{c, func() Ladder { return scsiLadder(p, wait) }}
}

// Ladder reads what the disk can do. It changes nothing.
func (d *Drive) Ladder() Ladder { return d.ladder() }

// Close ends the use of the disk's commands.
func (d *Drive) Close() error { return d.c.Close() }
