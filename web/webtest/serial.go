package webtest

import (
	"context"
	"io"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/serial"
)

// Lines are the serial consoles of machines. A machine whose console is bound to the driver "ipmi" has one.
type Lines struct {
	Err error // of opening

	news chan *Line
}

// Line is an open console, as the machine sees it: it reads what is typed and prints by writing.
type Line struct {
	io.Reader
	io.Writer
	Closed chan struct{} // closed when the appliance let go of it
	hangUp func(error)
}

// HangUp ends the console from the machine's side; nil: as it should.
func (l *Line) HangUp(err error) {
	if err == nil {
		err = io.EOF
	}
	l.hangUp(err)
}

// Next waits for the next console to be opened.
func (l *Lines) Next(ctx context.Context) *Line {
	select {
	case x := <-l.news:
		return x
	case <-ctx.Done():
		return nil
	}
}

// side is the appliance's side.
type side struct {
	io.Reader
	io.Writer
	close func()
}

// Close ends both ways.
func (s side) Close() error { s.close(); return nil }

func (l *Lines) dial(context.Context, *app.Machine) (io.ReadWriteCloser, error) {
	if l.Err != nil {
		return nil, l.Err
	}
	typed, keys := io.Pipe()
	screen, prints := io.Pipe()
	x := &Line{Reader: typed, Writer: prints, Closed: make(chan struct{}), hangUp: func(err error) { _ = prints.CloseWithError(err) }}
	l.news <- x
	return side{screen, keys, sync.OnceFunc(func() {
		_ = screen.Close()
		_ = keys.Close()
		close(x.Closed)
	})}, nil
}

func (x *Site) serials() {
	x.Lines = &Lines{news: make(chan *Line, 16)}
	x.Serials = serial.New(serial.Config{
		Check: func(m *app.Machine) error {
			if m.Drivers["console"].Driver != "ipmi" {
				return app.Errorf(app.Unsupported, "no-console", "%s has no serial console: none of its drivers serves one", m.Name).Do("bind a driver of the kind console")
			}
			return nil
		},
		Open: x.Lines.dial, Record: func(e app.Event) { x.Bus.Emit(e); x.Records.Event(e) }, Now: x.Clock.Now,
		Line: func(machineID, text string) { x.Records.Console(machineID).Line(text) },
	})
}
