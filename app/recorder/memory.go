package recorder

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Limits of Memory.
const (
	maxMemory        = 20_000 // records in all
	maxMemorySubject = 2_000  // of one machine or address
)

// Memory is a RecordStore without a file: what the recorder writes to while its file cannot be opened. It is safe for
// concurrent use.
type Memory struct {
	mu   sync.Mutex
	last int64
	all  []app.Record // oldest first
}

var _ app.RecordStore = (*Memory)(nil)

// AddRecords implements app.RecordStore.
func (m *Memory) AddRecords(_ context.Context, batch []app.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		m.last++
		batch[i].ID = m.last
		m.all = append(m.all, batch[i])
	}
	m.bound()
	return nil
}

// bound drops the oldest of each subject that has too many, then of all. mu must be held.
func (m *Memory) bound() {
	n := map[string]int{}
	for i := range m.all {
		n[subject(&m.all[i])]++
	}
	total := len(m.all)
	m.all = slices.DeleteFunc(m.all, func(r app.Record) bool {
		s := subject(&r)
		if n[s] <= maxMemorySubject && total <= maxMemory {
			return false
		}
		n[s]--
		total--
		return true
	})
}

// subject is whose timeline a record is on.
func subject(r *app.Record) string {
	if r.MachineID != "" {
		return r.MachineID
	}
	return "mac:" + string(r.MAC)
}

// ListRecords implements app.RecordStore.
func (m *Memory) ListRecords(_ context.Context, f app.RecordFilter) ([]app.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := f.Limit
	if limit <= 0 {
		limit = 200
	}
	var out []app.Record
	for _, r := range slices.Backward(m.all) {
		if len(out) == min(limit, 1000) {
			break
		}
		if matches(f, &r) {
			out = append(out, r)
		}
	}
	return out, nil
}

// matches reports whether a filter selects a record.
func matches(f app.RecordFilter, r *app.Record) bool {
	switch {
	case f.MachineID != r.MachineID || f.MachineID == "" && f.MAC != r.MAC,
		f.Before > 0 && r.ID >= f.Before, f.After > 0 && r.ID <= f.After, r.Time.Before(f.Since):
		return false
	}
	return len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(k string) bool {
		return k == r.Kind || strings.HasSuffix(k, ".") && strings.HasPrefix(r.Kind, k)
	})
}

// ClaimRecords implements app.RecordStore.
func (m *Memory) ClaimRecords(_ context.Context, mac app.MAC, machineID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.all {
		if m.all[i].MachineID == "" && m.all[i].MAC == mac {
			m.all[i].MachineID = machineID
		}
	}
	return nil
}

// ForgetRecords implements app.RecordStore.
func (m *Memory) ForgetRecords(_ context.Context, machineID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(m.all, func(r app.Record) bool { return r.MachineID == machineID })
	return nil
}

// PruneRecords implements app.RecordStore.
func (m *Memory) PruneRecords(_ context.Context, before time.Time) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := len(m.all)
	m.all = slices.DeleteFunc(m.all, func(r app.Record) bool { return r.Time.Before(before) })
	return int64(had - len(m.all)), nil
}

// Close implements app.RecordStore.
func (m *Memory) Close() error { return nil }
