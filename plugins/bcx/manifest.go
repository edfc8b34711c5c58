package bcx

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// Description is what a plugin says about itself.
type Description struct {
	PluginVersion string
	Drivers       []Manifest // by id; every one of them passes driver.Define
}

// Manifest declares one driver of a plugin.
type Manifest struct {
	ID           string
	Version      string
	RunsOn       string
	Kinds        []string            // sorted
	ConfigSchema json.RawMessage     // JSON Schema 2020-12; empty: no configuration
	Capabilities []string            // sorted, without the streams
	Streams      []string            // "<kind>.<operation>" that give a byte stream, sorted
	RetrySafe    map[string][]string // operations by kind, sorted
}

// describe checks what a plugin answered to Describe.
func describe(r *driverv1.DescribeResponse) (Description, error) {
	if v := r.GetProtocolVersion(); v != ProtocolVersion {
		return Description{}, fmt.Errorf("%w: version %d instead of %d", ErrProtocol, v, ProtocolVersion)
	}
	d := Description{PluginVersion: clean(r.GetPluginVersion(), 64)}
	if n := len(r.GetDrivers()); n == 0 || n > maxDrivers {
		return d, fmt.Errorf("the plugin describes %d drivers, it must be 1 to %d", n, maxDrivers)
	}
	for _, m := range r.GetDrivers() {
		manifest, err := readManifest(m)
		if err != nil {
			return d, fmt.Errorf("the plugin describes its driver %q wrongly: %s", clean(m.GetId(), 64), clean(err.Error(), maxText))
		}
		d.Drivers = append(d.Drivers, manifest)
	}
	slices.SortFunc(d.Drivers, func(a, b Manifest) int { return strings.Compare(a.ID, b.ID) })
	for i := 1; i < len(d.Drivers); i++ {
		if d.Drivers[i].ID == d.Drivers[i-1].ID {
			return d, fmt.Errorf("the plugin describes the driver %s twice", d.Drivers[i].ID)
		}
	}
	return d, nil
}

// readManifest checks one manifest. Retry-safe operations that a known kind does not have are left out: nobody can invoke
// them here, and a plugin may be newer than its host.
func readManifest(w *driverv1.DriverManifest) (Manifest, error) {
	m := Manifest{ID: w.GetId(), Version: w.GetVersion(), RunsOn: w.GetRunsOn(), RetrySafe: map[string][]string{}}
	if n := max(len(w.GetKinds()), len(w.GetCapabilities()), len(w.GetRetrySafeOperations())); n > 256 {
		return m, fmt.Errorf("it lists %d things, the limit is 256", n)
	}
	m.Kinds = sorted(w.GetKinds())
	if s := w.GetConfigSchemaJson(); s != "" {
		m.ConfigSchema = json.RawMessage(s)
	}
	for _, c := range w.GetCapabilities() {
		if s, ok := strings.CutPrefix(c, StreamCapability); ok {
			m.Streams = append(m.Streams, s)
		} else {
			m.Capabilities = append(m.Capabilities, c)
		}
	}
	m.Streams, m.Capabilities = sorted(m.Streams), sorted(m.Capabilities)
	for _, s := range slices.Concat(m.Streams, w.GetRetrySafeOperations()) {
		kind, op, _ := strings.Cut(s, ".")
		if op == "" || len(s) > 128 || !slices.Contains(m.Kinds, kind) {
			return m, fmt.Errorf("%q is not an operation of its kinds", clean(s, 80))
		}
	}
	for _, s := range sorted(w.GetRetrySafeOperations()) {
		kind, op, _ := strings.Cut(s, ".")
		if k, known := driver.LookupKind(kind); known && len(k.Operations) > 0 {
			if _, has := k.Operation(op); !has {
				continue
			}
		}
		m.RetrySafe[kind] = append(m.RetrySafe[kind], op)
	}
	_, err := driver.Define(Remote(m, func(*driver.Context) (*Conn, error) { return nil, errors.New("not connected") }))
	return m, err
}

func sorted(in []string) []string { return slices.Compact(slices.Sorted(slices.Values(in))) }
