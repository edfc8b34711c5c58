package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/better-compute/bcd/plugins/bcx"
)

const maxMemory = 16 << 20 // bytes of the file

// memory keeps what each plugin served last, so that its drivers are known, as down, before it has started: after a restart
// of the appliance a machine's driver is late, not missing. It is a help only: what it cannot keep is learnt anew.
type memory struct {
	path string // "" keeps nothing

	mu  sync.Mutex
	all map[string]remembered // by the plugin's name
}

type remembered struct {
	SHA256  string         `json:"sha256,omitempty"` // the pin; "" of a bundled plugin
	Drivers []bcx.Manifest `json:"drivers"`
}

func openMemory(path string) (*memory, error) {
	m := &memory{path: path, all: map[string]remembered{}}
	if path == "" {
		return m, nil
	}
	f, err := openOwn(path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxMemory)).Decode(&m.all); err != nil {
		m.all = map[string]remembered{}
		return m, fmt.Errorf("reading %s: %w", path, err)
	}
	return m, nil
}

// recall gives what a plugin served when it was pinned as it is.
func (m *memory) recall(src source) []bcx.Manifest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.all[src.pin.Name]; ok && r.SHA256 == src.pin.SHA256 {
		return r.Drivers
	}
	return nil
}

// keep notes what a plugin serves; nil drivers forget it.
func (m *memory) keep(src source, drivers []bcx.Manifest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if drivers == nil {
		delete(m.all, src.pin.Name)
	} else {
		m.all[src.pin.Name] = remembered{src.pin.SHA256, slices.Clone(drivers)}
	}
	if m.path == "" {
		return nil
	}
	text, err := json.Marshal(m.all)
	if err != nil {
		return fmt.Errorf("writing %s: %w", m.path, err)
	}
	if old, err := os.ReadFile(m.path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return replace(m.path, bytes.NewReader(text), 0o600)
}
