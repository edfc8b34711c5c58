package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// maxQMP bounds what one QMP connection may send without a pause between values: replies to our commands are small.
const maxQMP = 1 << 20

// qmp speaks the QEMU Machine Protocol on one connection. Events are few and handed to a func.
type qmp struct {
	conn    net.Conn
	onEvent func(name string, data json.RawMessage)
	ready   chan struct{} // closed when QEMU has greeted
	gone    chan struct{} // closed when the connection has ended

	mu      sync.Mutex // protects what follows, and writes
	next    int
	pending map[int]chan qmpMessage
}

type qmpMessage struct {
	Greeting json.RawMessage `json:"QMP"`
	ID       int             `json:"id"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// newQMP starts to read; it owns conn.
func newQMP(conn net.Conn, onEvent func(string, json.RawMessage)) *qmp {
	q := &qmp{conn: conn, onEvent: onEvent, ready: make(chan struct{}), gone: make(chan struct{}), pending: map[int]chan qmpMessage{}}
	go q.read()
	return q
}

func (q *qmp) read() {
	defer close(q.gone)
	bounded := &resettingReader{r: q.conn}
	dec := json.NewDecoder(bounded)
	greeted := false
	for {
		bounded.left = maxQMP
		var m qmpMessage
		if err := dec.Decode(&m); err != nil {
			return
		}
		switch {
		case m.Greeting != nil && !greeted:
			greeted = true
			close(q.ready)
		case m.Event != "":
			q.onEvent(m.Event, m.Data)
		default:
			q.mu.Lock()
			reply := q.pending[m.ID]
			delete(q.pending, m.ID)
			q.mu.Unlock()
			if reply != nil {
				reply <- m
			}
		}
	}
}

// start waits for the greeting and leaves negotiation mode.
func (q *qmp) start(ctx context.Context) error {
	select {
	case <-q.ready:
		return q.do(ctx, "qmp_capabilities")
	case <-q.gone:
		return errors.New("QEMU closed its control channel before greeting")
	case <-ctx.Done():
		return fmt.Errorf("waiting for QEMU's greeting: %w", ctx.Err())
	}
}

// do runs a command without arguments.
func (q *qmp) do(ctx context.Context, command string) error { return q.run(ctx, command, nil) }

// run runs a command.
func (q *qmp) run(ctx context.Context, command string, arguments map[string]any) error {
	reply := make(chan qmpMessage, 1)
	q.mu.Lock()
	q.next++
	id := q.next
	q.pending[id] = reply
	line := map[string]any{"execute": command, "id": id}
	if arguments != nil {
		line["arguments"] = arguments
	}
	err := json.NewEncoder(q.conn).Encode(line)
	q.mu.Unlock()
	if err != nil {
		return fmt.Errorf("sending %s to QEMU: %w", command, err)
	}
	select {
	case m := <-reply:
		if m.Error != nil {
			return fmt.Errorf("QEMU refused %s: %s", command, m.Error.Desc)
		}
		return nil
	case <-q.gone:
		return fmt.Errorf("QEMU ended during %s", command)
	case <-ctx.Done():
		return fmt.Errorf("waiting for QEMU's answer to %s: %w", command, ctx.Err())
	}
}

// resettingReader ends the stream when more than left octets come without a reset.
type resettingReader struct {
	r    io.Reader
	left int
}

func (b *resettingReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("QMP message too large")
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
