package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/event"
)

const (
	streamBuffer = 256              // events waiting for a slow reader of a stream
	pingEvery    = 15 * time.Second // so that proxies and readers know a quiet stream from a dead one
)

func (a *API) eventRoutes() []Route {
	filter := []Param{paramMachine, {"workflow", "string", "id of a workflow"}, {"kind", "string", "such as bmc.power; bmc. is the whole family"}}
	return []Route{
		on(Route{ID: "events.list", Method: "GET", Path: "/api/v1/events", Permission: app.PermEventsRead, Summary: "List events, newest first.",
			Query: append(slices.Clone(filter), Param{"since", "string", "RFC 3339 time"}, Param{"before", "integer", "next of the page before"}, paramLimit),
			CLI:   CLI{"event", "list"}}, a.listEvents),
		on(Route{ID: "events.stream", Method: "GET", Path: "/api/v1/events/stream", Permission: app.PermEventsRead, Raw: true,
			Summary: "Follow events as a stream of server-sent events; Last-Event-ID resumes.", Query: filter,
			Headers: []Param{{"Last-Event-ID", "integer", "the last event seen"}}, CLI: CLI{"event", "follow"}}, a.streamEvents),
	}
}

func (a *API) eventFilter(c *Call) (app.EventFilter, error) {
	f := app.EventFilter{WorkflowID: c.Query.Get("workflow"), Kind: c.Query.Get("kind")}
	var err error
	if f.MachineID, err = a.machineID(c); err != nil {
		return f, err
	}
	if f.Limit, err = c.limit(100); err != nil {
		return f, err
	}
	if s := c.Query.Get("since"); s != "" {
		if f.Since, err = time.Parse(time.RFC3339, s); err != nil {
			return f, app.Invalid("since", "is not a time").Do("write it as 2006-01-02T15:04:05Z")
		}
	}
	if s := c.Query.Get("before"); s != "" {
		if f.Before, err = strconv.ParseInt(s, 10, 64); err != nil || f.Before < 1 {
			return f, app.Invalid("before", "is not the id of an event")
		}
	}
	return f, nil
}

func (a *API) listEvents(c *Call, _ none) (List[app.Event], error) {
	f, err := a.eventFilter(c)
	if err != nil {
		return List[app.Event]{}, err
	}
	out, err := list(a.Events.ListEvents(c, f))
	if n := len(out.Items); n == f.Limit {
		out.Next = strconv.FormatInt(out.Items[n-1].ID, 10)
	}
	return out, err
}

func (a *API) streamEvents(c *Call, _ rawInput) (none, error) {
	f, err := a.eventFilter(c)
	if err != nil {
		return none{}, err
	}
	last := int64(0)
	if s := c.r.Header.Get("Last-Event-ID"); s != "" {
		if last, err = strconv.ParseInt(s, 10, 64); err != nil || last < 0 {
			return none{}, app.Invalid("Last-Event-ID", "is not the id of an event")
		}
	}
	sub := a.Bus.Subscribe(event.Filter{MachineID: f.MachineID, Workflow: f.WorkflowID, Kind: f.Kind}, streamBuffer)
	defer sub.Close()
	var missed []app.Event
	if last > 0 {
		if missed, err = a.missed(c, f, last); err != nil {
			return none{}, err
		}
	}
	s := NewStream(c.w)
	for _, e := range missed {
		last = e.ID
		if err := s.event(e); err != nil {
			return none{}, nil // the reader has gone
		}
	}
	return none{}, s.follow(c, sub, last)
}

// missed lists what happened after an id, oldest first, at most 1000.
func (a *API) missed(c *Call, f app.EventFilter, after int64) ([]app.Event, error) {
	f.Limit = 1000
	out, err := a.Events.ListEvents(c, f)
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(e app.Event) bool { return e.ID <= after })
	slices.Reverse(out)
	return out, nil
}

// Stream writes server-sent events. What it wrote last must leave in time, but the next may come late.
type Stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// NewStream starts an event stream on w.
func NewStream(w http.ResponseWriter) *Stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := &Stream{w: w, rc: http.NewResponseController(w)}
	_ = s.rc.SetReadDeadline(time.Time{})
	_ = s.write(": hello\n\n")
	return s
}

func (s *Stream) write(text string) error {
	if _, err := s.w.Write([]byte(text)); err != nil { // the server says how long it may take
		return err
	}
	if err := s.rc.Flush(); err != nil {
		return err
	}
	_ = s.rc.SetWriteDeadline(time.Time{})
	return nil
}

// Ping keeps the stream open.
func (s *Stream) Ping() error { return s.write(": ping\n\n") }

// Send writes one event with a name. The data may hold any text: each line is sent as its own data field.
func (s *Stream) Send(name, data string) error {
	return s.write("event: " + name + "\n" + dataLines(data) + "\n")
}

func (s *Stream) event(e app.Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	id := ""
	if e.ID > 0 {
		id = fmt.Sprintf("id: %d\n", e.ID)
	}
	return s.write(id + "data: " + string(b) + "\n\n")
}

// follow sends what the subscription brings, skipping what was sent before, until the reader goes or may no longer read.
func (s *Stream) follow(c *Call, sub *event.Subscription, last int64) error {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-c.Done():
			return nil
		case <-ping.C:
			if c.Who, err = c.a.Access.Still(c, c.Who); err == nil {
				err = c.Who.Need(app.PermEventsRead)
			}
			if err == nil {
				err = s.Ping()
			}
		case e := <-sub.C:
			if e.ID > 0 && e.ID <= last {
				continue
			}
			err = s.event(e)
		}
		if err != nil {
			return nil // the reader has gone, or may read no more
		}
	}
}
