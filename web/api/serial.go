package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/web/problem"
)

// Headers of an open serial console.
const (
	ConsoleTake = "Bcd-Console-Take" // of the request: "true" ends another's
	ConsoleHead = "Bcd-Console"      // of the answer: a ConsoleState
	ConsoleEnd  = "Bcd-Console-End"  // its trailer: the error that the console ended with; absent when its caller ended it
)

// maxEnd bounds the sentence of an end, in bytes.
const maxEnd = 1000

// ConsoleState is a machine's serial console, and who has it open.
type ConsoleState struct {
	Machine string     `json:"machine"`          // name
	Driver  string     `json:"driver,omitempty"` // that serves it
	BMC     string     `json:"bmc,omitempty"`    // address
	Holder  string     `json:"holder,omitempty"` // absent: nobody
	Since   time.Time  `json:"since,omitzero"`
	Lacks   *app.Error `json:"lacks,omitempty"` // why it cannot be opened
}

func (a *API) serialRoutes() []Route {
	const path = "/api/v1/machines/{id}/console"
	return []Route{
		on(Route{ID: "machines.console-state", Method: "GET", Path: path, Permission: app.PermMachinesRead,
			Summary: "Show whether a machine has a serial console, and who has it open."}, a.consoleState),
		on(Route{ID: "machines.console", Method: "POST", Path: path, Permission: app.PermMachinesWrite, Raw: true, Duplex: true,
			Summary: "Open a machine's serial console, both ways at once: the body is what is typed, the answer what the machine prints. " +
				"The end of the body closes it; the trailer " + ConsoleEnd + " says, as the error of other answers, why it ended otherwise.",
			Headers: []Param{{ConsoleTake, "boolean", "true takes it over from whoever has it open"}},
			CLI:     CLI{"machine", "console"}}, a.openConsole),
	}
}

func (a *API) consoleState(c *Call, _ none) (*ConsoleState, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	return a.console(m), nil
}

func (a *API) console(m *app.Machine) *ConsoleState {
	s := &ConsoleState{Machine: m.Name, Driver: m.Drivers["console"].Driver}
	if m.BMC != nil {
		s.BMC = m.BMC.Address
	}
	s.Holder, s.Since = a.Consoles.Holder(m.ID)
	if e, ok := app.AsError(a.Consoles.Check(m)); ok {
		s.Lacks = e
	}
	return s
}

func (a *API) openConsole(c *Call, _ rawInput) (none, error) {
	take := false
	switch c.r.Header.Get(ConsoleTake) {
	case "", "false":
	case "true":
		take = true
	default:
		return none{}, app.Invalid(ConsoleTake, "is neither true nor false")
	}
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return none{}, err
	}
	s, err := a.Consoles.Open(c, serial.Person{Name: c.Who.User.Name, Actor: c.actor()}, m, take)
	if err != nil {
		return none{}, err
	}
	state, err := json.Marshal(a.console(m))
	if err != nil {
		return none{}, errors.Join(err, s.Close())
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set(ConsoleHead, ascii(state))
	h.Set("Trailer", ConsoleEnd)
	c.w.WriteHeader(http.StatusOK)
	if end := a.carry(c, m.ID, s); end != nil {
		h.Set(ConsoleEnd, endOf(end))
	}
	return none{}, nil
}

// carry carries both ways until the console ends, and gives why; nil when its caller left it.
func (a *API) carry(c *Call, machineID string, s *serial.Session) *app.Error {
	rc := http.NewResponseController(c.w)
	ctx, cancel := context.WithCancel(c)
	over := make(chan struct{}, 2)
	go func() { typed(c.r.Body, s); over <- struct{}{} }()
	go func() { a.watchConsole(ctx, c.Who, machineID, s); over <- struct{}{} }()
	err := printed(c.w, rc, s)
	s.End(err)
	_ = s.Close()
	gone := c.Err() != nil // before the deadline, which over HTTP/1 looks like it
	cancel()
	_ = rc.SetReadDeadline(time.Now()) // what is typed now is nobody's
	<-over
	<-over
	if _, said := app.AsError(err); gone && !said || errors.Is(err, serial.ErrLeft) {
		return nil // there is nobody to tell, or nothing
	}
	return problem.Public(c, a.Log, err)
}

// typed carries what is typed. Its end is the console's.
func typed(body io.Reader, s *serial.Session) {
	b := make([]byte, 4<<10)
	for {
		n, err := body.Read(b)
		if n > 0 {
			if _, werr := s.Write(b[:n]); werr != nil {
				return // what reads from it says why
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			s.End(serial.ErrLeft)
			return
		case err != nil:
			s.End(app.Errorf(app.Unavailable, "caller-gone", "the connection broke off").Retryable())
			return
		}
	}
}

// printed carries what the machine prints until the console ends, and gives why. A reader that takes nothing for stallTime is
// let go.
func printed(w io.Writer, rc *http.ResponseController, s *serial.Session) error {
	b := make([]byte, 16<<10)
	var err error
	for n := 0; ; n, err = s.Read(b) {
		_ = rc.SetWriteDeadline(time.Now().Add(stallTime))
		if _, werr := w.Write(b[:n]); werr != nil || rc.Flush() != nil {
			return app.Errorf(app.Timeout, "reader-gone", "what it printed was not taken").Retryable()
		}
		switch {
		case errors.Is(err, io.EOF):
			return app.Errorf(app.Unavailable, "console-ended", "its driver ended the console").Do("open it again").Retryable()
		case err != nil:
			return err
		}
		_ = rc.SetWriteDeadline(time.Time{}) // a machine may be still for long
	}
}

// watchConsole ends a console whose holder may no longer have it, or whose machine is no more.
func (a *API) watchConsole(ctx context.Context, who *access.Identity, machineID string, s *serial.Session) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		if who, err = a.Access.Still(ctx, who); err == nil {
			err = who.Need(app.PermMachinesWrite)
		}
		if err == nil {
			_, err = a.Machines.Machine(ctx, machineID) // by id: it may get another name
		}
		if ctx.Err() == nil && err != nil {
			s.End(err)
			return
		}
	}
}

// endOf writes an error for a trailer.
func endOf(e *app.Error) string {
	short := *e
	short.Message, short.WayOut = clip(e.Message), clip(e.WayOut)
	b, err := json.Marshal(&short)
	if err != nil {
		return ""
	}
	return ascii(b)
}

func clip(s string) string {
	if len(s) > maxEnd {
		return strings.ToValidUTF8(s[:maxEnd], "") + "…"
	}
	return s
}

// ascii makes JSON fit for a header: it has only plain characters then, and says the same.
func ascii(raw []byte) string {
	var b strings.Builder
	for _, r := range string(raw) {
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

// Duplex prepares a connection for a request whose answer is written while its body is still being sent. What it gives is
// called when the request was answered: a body that nobody waits for any more would otherwise be waited for.
func Duplex(w http.ResponseWriter, r *http.Request) (end func()) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // what is typed comes when it comes
	if r.ProtoMajor == 1 {
		_ = rc.EnableFullDuplex()
		w.Header().Set("Connection", "close") // what is left of the body is no other request
	}
	return func() { _ = rc.SetReadDeadline(time.Now()) }
}
