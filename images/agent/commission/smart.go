package commission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Health is what a disk says of itself.
type Health struct {
	Protocol string          // "NVMe", "ATA", "SCSI"
	Faults   []string        // what it calls a failure, or the threat of one
	Values   []HealthReading // what it counts
}

// HealthReading is one value that a disk keeps of itself.
type HealthReading struct {
	Name, Unit string
	Value      float64
	Limit      string // parameter that bounds it; "": none
}

func (h *Health) fault(format string, args ...any) {
	h.Faults = append(h.Faults, fmt.Sprintf(format, args...))
}

func (h *Health) value(name, unit string, v float64, limit string) {
	h.Values = append(h.Values, HealthReading{name, unit, v, limit})
}

// silent is why a disk tells nothing of its health, which is no fault of it.
type silent struct{ why string }

func (s silent) Error() string { return s.why }

// ownHealth asks a disk by its own commands. It changes nothing on it.
func ownHealth(path string, d agentv1.Disk) (Health, error) {
	nvme, scsi := d.Transport == "nvme", strings.HasPrefix(d.Name, "sd")
	if !nvme && !scsi {
		return Health{}, silent{"a " + d.Transport + " disk has no command for its health"}
	}
	f, err := os.Open(path)
	if err != nil {
		return Health{}, err
	}
	defer f.Close()
	if nvme {
		return nvmeHealth(passthrough.NVMeFile{File: f})
	}
	return scsiHealth(passthrough.SGFile{File: f})
}

// smart asks each fixed disk for its health.
func (t *Tester) smart(ctx context.Context, r *run) error {
	disks, err := t.fixed(ctx, r)
	if err != nil {
		return err
	}
	for i, d := range disks {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.progress(int64(i), int64(len(disks)), "disks", d.Name)
		h, err := t.cfg.Health(filepath.Join(t.cfg.Dev, d.Name), d)
		var s silent
		switch {
		case errors.As(err, &s):
			r.skip(d.Name, "%s", s.why)
			continue
		case err != nil:
			r.did()
			r.text(d.Name, "health", "not told: %v", err)
			r.fail("%s does not tell its health: %v", d.Name, err)
			continue
		}
		r.healthOf(d.Name, h)
	}
	return nil
}

func (r *run) healthOf(disk string, h Health) {
	r.did()
	verdict := "good"
	if len(h.Faults) > 0 {
		verdict = strings.Join(h.Faults, "; ")
	}
	r.add(agentv1.TestValue{Subject: disk, Name: h.Protocol + " health", Text: verdict, Failed: len(h.Faults) > 0})
	for _, f := range h.Faults {
		r.fail("%s: %s", disk, f)
	}
	for _, v := range h.Values {
		if v.Limit == "" {
			r.value(disk, v.Name, v.Unit, v.Value)
			continue
		}
		r.atMost(disk, v.Name, v.Unit, v.Value, v.Limit)
	}
}
