package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
)

const (
	databaseFile = "bcd.db" // in the data directory of an appliance
	listed       = 1000     // machines
	listsEach    = 5        // lists for each boot asked for: they are cheap
)

// lists measures the API's longest list and the console's page of it.
func (s *session) lists(ctx context.Context) error {
	s.say("list_1000_ms: making %d machines", listed)
	fill := func(dataDir string) error { return machines(ctx, filepath.Join(dataDir, databaseFile)) }
	return s.withAppliance(ctx, fill, func(a *appliance) error {
		api, size, err := s.timed(ctx, a, fmt.Sprintf("/api/v1/machines?limit=%d", listed), func(b []byte) error {
			var page app.MachinePage
			if err := json.Unmarshal(b, &page); err != nil || len(page.Items) != listed {
				return fmt.Errorf("%d machines are listed: %w", len(page.Items), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.note("list_1000_ms: GET /api/v1/machines?limit=%d over TLS on a kept connection, %d bytes, by a client on the same host; median of %s", listed, size, list(api, 1))
		s.put("list_1000_ms", median(api), 1)
		page, size, err := s.timed(ctx, a, "/machines", func([]byte) error { return nil })
		if err != nil {
			return err
		}
		s.note("list_page_1000_ms: the console's list of machines, %d bytes: the first page of %d; median of %s", size, listed, list(page, 1))
		s.put("list_page_1000_ms", median(page), 1)
		return nil
	})
}

// timed reads a page again and again, the first time only to warm up, and gives milliseconds and the page's size.
func (s *session) timed(ctx context.Context, a *appliance, path string, check func([]byte) error) (ms []float64, size int, err error) {
	for n := range 1 + listsEach*s.Boots {
		begin := time.Now()
		b, err := a.Get(ctx, path)
		took := time.Since(begin)
		if err != nil {
			return nil, 0, err
		}
		if err := check(b); err != nil {
			return nil, 0, fmt.Errorf("reading %s: %w", path, err)
		}
		if size = len(b); n > 0 {
			ms = append(ms, took.Seconds()*1e3)
		}
	}
	return ms, size, nil
}

// machines fills a database with machines as commissioned ones are: with BMC, ports, labels and a summary.
func machines(ctx context.Context, path string) (err error) {
	db, err := store.Open(ctx, store.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	at := time.Now().UTC()
	for i := range listed {
		m := &app.Machine{
			ID: fmt.Sprintf("m-%016d", i), Name: fmt.Sprintf("rack%02d-node%02d", i/40, i%40), State: app.StateReady, StateSince: at, Pool: "", Note: "bought with the others of its rack",
			Labels: map[string]string{"rack": fmt.Sprint(i / 40), "role": "compute"}, Vendor: "Better Compute", Model: "Virtual Machine", Serial: fmt.Sprintf("SN%06d", i),
			UUID: app.UUID(fmt.Sprintf("b0a7ca5e-0000-4000-8000-%012x", i)), Firmware: app.FirmwareUEFI, Power: app.PowerOff, PowerSeen: at,
			BMC:     &app.BMC{Driver: "redfish", Address: fmt.Sprintf("https://bmc-%04d.example", i), CredentialRef: fmt.Sprintf("secret:%d", i)},
			Summary: app.HardwareSummary{CPUs: 64, CPUModel: "a processor with a name of usual length @ 2.40GHz", MemoryBytes: 512 << 30, Disks: 4, DiskBytes: 8 << 40}, Created: at, Updated: at,
		}
		for p := range 4 {
			m.NICs = append(m.NICs, app.NIC{MAC: app.MAC(fmt.Sprintf("02:00:5e:%02x:%02x:%02x", i>>8, i&255, p)), Name: fmt.Sprintf("eth%d", p), Confirmed: true, Boot: p == 0, Source: "inventory"})
		}
		if err := db.CreateMachine(ctx, m); err != nil {
			return fmt.Errorf("making machine %s: %w", m.Name, err)
		}
	}
	return nil
}
