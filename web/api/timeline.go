package api

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
)

// verdictEvery is how often a stream of a timeline looks at the verdict, besides when something was recorded.
const verdictEvery = 5 * time.Second

// maxKinds bounds the kinds that one request names.
const maxKinds = 16

// Timeline is a page of what was seen of a machine, newest first, and how its boot stands.
type Timeline struct {
	Items   []app.Record      `json:"items"`
	Next    string            `json:"next,omitempty"` // pass as before
	Verdict *recorder.Verdict `json:"verdict,omitempty"`
}

func (a *API) timelineRoutes() []Route {
	kinds := Param{"kind", "string", "kinds, separated by commas; dhcp. is the whole family, as are tftp. http. ipxe. bmc. boot. agent. os. workflow. console. machine."}
	return []Route{
		on(Route{ID: "machines.timeline", Method: "GET", Path: "/api/v1/machines/{id}/timeline", Permission: app.PermMachinesRead,
			Summary: "Show what was seen of a machine, newest first: network, BMC, agent, console, workflows; and how its boot stands.",
			Query:   []Param{kinds, {"since", "string", "RFC 3339 time"}, {"before", "integer", "next of the page before"}, paramLimit},
			CLI:     CLI{"machine", "timeline"}}, a.timeline),
		on(Route{ID: "machines.timeline-stream", Method: "GET", Path: "/api/v1/machines/{id}/timeline/stream", Permission: app.PermMachinesRead, Raw: true,
			Summary: "Follow a machine's timeline as server-sent events, with its verdict as events named verdict; Last-Event-ID resumes.",
			Query:   []Param{kinds}, Headers: []Param{{"Last-Event-ID", "integer", "the last record seen"}}}, a.streamTimeline),
		on(Route{ID: "discoveries.timeline", Method: "GET", Path: "/api/v1/discoveries/{mac}/timeline", Permission: app.PermMachinesRead,
			Summary: "Show what was seen of a port that is nobody's yet.", Query: []Param{kinds, {"before", "integer", "next of the page before"}, paramLimit},
			CLI: CLI{"discovery", "timeline"}}, a.portTimeline),
	}
}

var recordKindRE = regexp.MustCompile(`^[a-z][a-z-]{0,30}\.[a-z0-9.-]{0,30}$`)

// recordFilter reads the part of a filter that is not the subject.
func recordFilter(c *Call) (app.RecordFilter, error) {
	var f app.RecordFilter
	var err error
	if s := c.Query.Get("kind"); s != "" {
		f.Kinds = strings.Split(s, ",")
		if len(f.Kinds) > maxKinds || slices.ContainsFunc(f.Kinds, func(k string) bool { return !recordKindRE.MatchString(k) }) {
			return f, app.Invalid("kind", "is not a list of kinds").Do("write kinds such as dhcp.offer or families such as dhcp. separated by commas, at most %d", maxKinds)
		}
	}
	if f.Limit, err = c.limit(200); err != nil {
		return f, err
	}
	if s := c.Query.Get("since"); s != "" {
		if f.Since, err = time.Parse(time.RFC3339, s); err != nil {
			return f, app.Invalid("since", "is not a time").Do("write it as 2006-01-02T15:04:05Z")
		}
	}
	if s := c.Query.Get("before"); s != "" {
		if f.Before, err = strconv.ParseInt(s, 10, 64); err != nil || f.Before < 1 {
			return f, app.Invalid("before", "is not the id of a record")
		}
	}
	return f, nil
}

func (a *API) timeline(c *Call, _ none) (Timeline, error) {
	f, err := recordFilter(c)
	if err != nil {
		return Timeline{}, err
	}
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return Timeline{}, err
	}
	f.MachineID = m.ID
	t, err := a.timelinePage(c, f)
	if err == nil {
		t.Verdict = a.Recorder.Verdict(c, m.ID)
	}
	return t, err
}

func (a *API) portTimeline(c *Call, _ none) (Timeline, error) {
	f, err := recordFilter(c)
	if err != nil {
		return Timeline{}, err
	}
	if f.MAC, err = c.mac(); err != nil {
		return Timeline{}, err
	}
	return a.timelinePage(c, f)
}

func (a *API) timelinePage(c *Call, f app.RecordFilter) (Timeline, error) {
	items, err := a.Recorder.List(c, f)
	t := Timeline{Items: items}
	if t.Items == nil {
		t.Items = []app.Record{}
	}
	if n := len(items); n == f.Limit {
		t.Next = strconv.FormatInt(items[n-1].ID, 10)
	}
	return t, err
}

func (a *API) streamTimeline(c *Call, _ rawInput) (none, error) {
	f, err := recordFilter(c)
	if err != nil {
		return none{}, err
	}
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return none{}, err
	}
	f.MachineID, f.Limit = m.ID, 1000
	if s := c.r.Header.Get("Last-Event-ID"); s != "" {
		if f.After, err = strconv.ParseInt(s, 10, 64); err != nil || f.After < 0 {
			return none{}, app.Invalid("Last-Event-ID", "is not the id of a record")
		}
	}
	sub := a.Recorder.Follow(f, streamBuffer)
	defer sub.Close()
	var missed []app.Record
	if f.After > 0 {
		if missed, err = a.Recorder.List(c, f); err != nil {
			return none{}, err
		}
		slices.Reverse(missed)
	}
	t := &timelineStream{Stream: NewStream(c.w), last: f.After}
	for _, x := range missed {
		if t.record(x) != nil {
			return none{}, nil // the reader has gone
		}
	}
	t.follow(c, a.Recorder, m.ID, sub)
	return none{}, nil
}

// timelineStream is a reader of one timeline.
type timelineStream struct {
	*Stream
	last    int64  // id of the last record sent
	verdict string // the last sent
}

func (t *timelineStream) record(x app.Record) error {
	if x.ID > 0 && x.ID <= t.last {
		return nil
	}
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	id := ""
	if x.ID > 0 {
		t.last, id = x.ID, fmt.Sprintf("id: %d\n", x.ID)
	}
	return t.write(id + "data: " + string(b) + "\n\n")
}

// judged sends the verdict when it is not the one that was sent.
func (t *timelineStream) judged(v *recorder.Verdict) error {
	b, err := json.Marshal(v)
	if err != nil || string(b) == t.verdict {
		return err
	}
	t.verdict = string(b)
	return t.Send("verdict", t.verdict)
}

// follow sends what comes in until the reader goes, may no longer read, or the machine is no more.
func (t *timelineStream) follow(c *Call, r *recorder.Recorder, machineID string, sub *recorder.Subscription) {
	tick, ping := time.NewTicker(verdictEvery), time.NewTicker(pingEvery)
	defer tick.Stop()
	defer ping.Stop()
	for err := t.judged(r.Verdict(c, machineID)); err == nil; {
		select {
		case <-c.Done():
			return
		case <-ping.C:
			if c.Who, err = c.a.Access.Still(c, c.Who); err == nil {
				err = c.Who.Need(app.PermMachinesRead)
			}
			if err == nil {
				_, err = c.a.Machines.Machine(c, machineID)
			}
			if err == nil {
				err = t.Ping()
			}
		case <-tick.C:
			err = t.judged(r.Verdict(c, machineID))
		case x := <-sub.C:
			if err = t.record(x); err == nil && len(sub.C) == 0 {
				err = t.judged(r.Verdict(c, machineID))
			}
		}
	}
}
