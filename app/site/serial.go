package site

import (
	"context"
	"io"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/serial"
)

// openSerial makes the consoles of machines. They end before the server does that people have them open through.
func (s *Site) openSerial() {
	s.serials = serial.New(serial.Config{
		Check: s.hasConsole, Record: s.emit, Line: s.ConsoleLine, Now: now,
		Open: func(ctx context.Context, m *app.Machine) (io.ReadWriteCloser, error) {
			held, err := s.db.Machine(ctx, m.ID) // its BMC may have been replaced since m was read; from here on that ends the console
			if err != nil {
				return nil, err
			}
			return s.registry.For(held, drivers.Options{}).Console(ctx)
		},
	})
}

// hasConsole tells why a machine's serial console cannot be opened.
func (s *Site) hasConsole(m *app.Machine) error {
	err := s.registry.Check(m, "console.open")
	if app.CodeOf(err) != app.Unsupported {
		return err
	}
	return app.Errorf(app.Unsupported, "no-console", "%s has no serial console: none of its drivers serves one", m.Name).
		Do("bind a driver of the kind console, or reach its BMC by IPMI: bcd machine set-bmc %s --driver ipmi --address <BMC>", m.Name)
}
