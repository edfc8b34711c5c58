package wipe

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/images/agent/wipe/internal/erase"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// What erases all namespaces of an NVMe drive is used when the order names them all, and must be proven on each.
func TestNamespacesOfOneDrive(t *testing.T) {
	const size = 4 << 20
	for name, c := range map[string]struct {
		order  []string // names of disks
		method string   // of the order
		among  int
		keeps  bool // the second namespace is not erased
		fails  bool
		want   string // method of the namespaces that are named
		note   string
		runs   int
	}{
		"both":              {order: []string{"sda", "sdb"}, among: 2, want: "all", runs: 1},
		"both, and a disk":  {order: []string{"sda", "sdc", "sdb"}, among: 2, want: "all", runs: 1},
		"one of two":        {order: []string{"sdb"}, among: 2, want: "discard+zero"},
		"both of three":     {order: []string{"sda", "sdb"}, among: 3, want: "discard+zero"},
		"one is not erased": {order: []string{"sda", "sdb"}, among: 2, keeps: true, want: "discard+zero", note: "all: a sentinel at offset 0", runs: 1},
		"it fails":          {order: []string{"sda", "sdb"}, among: 2, fails: true, want: "discard+zero", note: "all: the drive says no", runs: 1},
		"not asked for":     {order: []string{"sda", "sdb"}, method: overwrite, among: 2, want: overwrite},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, size, size, size)
			for i := range 2 {
				r.disks[i].Transport, r.disks[i].Controller, r.disks[i].Serial = "nvme", "0000:01:00.0", "NV"
			}
			runs, closed, opened := 0, 0, 0
			all := erase.Method{Name: "all", Run: func(ctx context.Context, p erase.Progress) error {
				runs++
				if c.fails {
					return errors.New("the drive says no")
				}
				err := scramble(t, filepath.Join(r.dir, "sda"), size).Run(ctx, p)
				if !c.keeps {
					err = errors.Join(err, scramble(t, filepath.Join(r.dir, "sdb"), size).Run(ctx, func(float64, string) {}))
				}
				return err
			}}
			r.cfg.Drive = func(_ string, d agentv1.Disk) (Drive, error) {
				if d.Transport != "nvme" {
					return nil, nil
				}
				opened++
				return &counted{drive{can: erase.Ladder{Shared: []erase.Method{all}, Among: c.among}}, &closed}, nil
			}
			o := agentv1.Wipe{Method: c.method}
			for _, name := range c.order {
				o.Disks = append(o.Disks, agentv1.DiskTarget{Name: name})
			}
			out, err := r.Wipe(t.Context(), o, func(agentv1.ProgressReport) {})
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range out.Disks {
				want := c.want
				if c.order[i] == "sdc" {
					want = "discard+zero"
				}
				if d.Disk.Name != c.order[i] || !d.Erased || d.Method != want || d.Sentinels == 0 || d.Ended.IsZero() || want != "discard+zero" && d.Note != "" || !strings.Contains(d.Note, c.note) {
					t.Errorf("%+v", d)
				}
			}
			if runs != c.runs || closed != opened {
				t.Errorf("it ran %d times, %d of %d closed", runs, closed, opened)
			}
			for _, d := range r.disks {
				if !strings.Contains(strings.Join(c.order, " "), d.Name) {
					r.untouched(t, d.Name)
				}
			}
		})
	}
}

// counted counts how often drives are closed.
type counted struct {
	drive
	n *int
}

func (c *counted) Close() error { *c.n++; return nil }
