package virtual

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// monitor is the other end of a QMP connection.
type monitor struct {
	net.Conn
	in *bufio.Scanner
}

func newMonitor(t *testing.T, onEvent func(string, json.RawMessage)) (*qmp, *monitor) {
	t.Helper()
	ours, theirs := net.Pipe()
	q := newQMP(ours, onEvent)
	t.Cleanup(func() { _ = theirs.Close(); _ = ours.Close(); <-q.gone })
	return q, &monitor{theirs, bufio.NewScanner(theirs)}
}

// answer reads one command and writes lines, with %d for its id.
func (m *monitor) answer(lines ...string) {
	if !m.in.Scan() {
		return
	}
	var c struct{ ID int }
	_ = json.Unmarshal(m.in.Bytes(), &c)
	for _, l := range lines {
		_, _ = fmt.Fprintln(m, strings.ReplaceAll(l, "%d", fmt.Sprint(c.ID)))
	}
}

func TestQMP(t *testing.T) {
	events := make(chan string, 4)
	q, m := newMonitor(t, func(name string, data json.RawMessage) { events <- name + string(data) })
	go func() {
		_, _ = fmt.Fprintln(m, `{"QMP":{"version":{}}}`)
		m.answer(`{"event":"RESUME","timestamp":{}}`, `{"return":{},"id":77}`, `{"return":{},"id":%d}`)
		m.answer(`{"error":{"class":"GenericError","desc":"no such thing"},"id":%d}`)
		_, _ = fmt.Fprintln(m, `{"event":"SHUTDOWN","data":{"reason":"guest-reset"}}`)
	}()
	if err := q.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := q.do(t.Context(), "explode"); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("a refused command: %v", err)
	}
	if e := []string{<-events, <-events}; e[0] != "RESUME" || e[1] != `SHUTDOWN{"reason":"guest-reset"}` {
		t.Errorf("events %v", e)
	}
}

func TestQMPThatEndsOrHangs(t *testing.T) {
	for name, greeting := range map[string]string{
		"closes": "", "garbage": "QEMU says hello\n", "endless value": `{"QMP":"` + strings.Repeat("x", maxQMP+100), "wrong type": `{"id":"one"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			q, m := newMonitor(t, func(string, json.RawMessage) {})
			go func() { _, _ = m.Write([]byte(greeting)); _ = m.Close() }()
			if err := q.start(t.Context()); err == nil {
				t.Error("it was taken for QEMU")
			}
		})
	}
	q, m := newMonitor(t, func(string, json.RawMessage) {})
	go func() { _, _ = fmt.Fprintln(m, `{"QMP":{}}`); m.in.Scan() }() // reads the command, never answers
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := q.start(ctx); err == nil || !strings.Contains(err.Error(), "waiting") {
		t.Errorf("no answer: %v", err)
	}
}
