package early

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ReportPath is where PID 1 keeps the Report.
const ReportPath = "/run/bcd/early.json"

// Report is what PID 1 knows of the machine's devices.
type Report struct {
	Settled bool              `json:"settled"` // no device turned up for half a second, or too many did for too long
	Loaded  []string          `json:"loaded"`  // drivers, in the order they came up
	Failed  map[string]string `json:"failed,omitempty"`
	Wants   []Want            `json:"wants,omitempty"`
}

// ReadReport reads the report at path. A missing one is a zero Report: nothing is known.
func ReadReport(path string) (Report, error) {
	var r Report
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("reading the report of PID 1: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decoding the report of PID 1: %w", err)
	}
	return r, nil
}

// WaitSettled reads the report until the devices have settled or ctx ends, and gives the last one either way: an
// inventory before that misses disks.
func WaitSettled(ctx context.Context, path string) (Report, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := ReadReport(path)
		if err != nil || r.Settled {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, nil
		case <-tick.C:
		}
	}
}

// writeReport replaces the file as a whole.
func writeReport(path string, r Report) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the report's directory: %w", err)
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replacing the report: %w", err)
	}
	return nil
}
