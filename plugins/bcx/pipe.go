package bcx

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// Stream runs an operation that gives a byte stream. ctx bounds the opening; the stream then lives until it is closed, the
// plugin ends it or the connection breaks. One goroutine may read while others write and close. An end that is not
// the proper one is a *driver.Error from Read.
func (c *Conn) Stream(ctx *driver.Context, r Request) (io.ReadWriteCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.AsError(err)
	}
	b := c.bound(ctx)
	defer b.done()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(b.wire, cancel)
	fail := func(err error) error {
		cancel()
		return c.failure(b.caller, err)
	}
	s, err := c.plugin.Stream(life)
	if err != nil {
		return nil, fail(err)
	}
	// An error of Send is always io.EOF; the reason comes from Recv.
	_ = s.Send(&driverv1.StreamFrame{Frame: &driverv1.StreamFrame_Open{Open: r.wire(ctx, b.left)}})
	first, err := s.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fail(foul("it ended the stream without an answer"))
	case err != nil:
		return nil, fail(err)
	case first.GetClose() != nil:
		return nil, fail(refused(first.GetClose()))
	case !empty(first):
		return nil, fail(foul("it answered open with something else than an empty data frame"))
	case !forget():
		return nil, fail(context.Cause(b.wire))
	}
	p := &pipe{conn: c, s: s, cancel: cancel, data: make(chan []byte), ended: make(chan struct{}), closing: make(chan struct{})}
	go p.receive()
	return p, nil
}

// empty reports whether a frame is the empty data frame that answers open.
func empty(f *driverv1.StreamFrame) bool {
	data, ok := f.GetFrame().(*driverv1.StreamFrame_Data)
	return ok && len(data.Data) == 0
}

// refused is the error of a stream that was closed instead of opened.
func refused(end *driverv1.StreamClose) *driver.Error {
	if e := end.GetError(); e != nil {
		return reported(e)
	}
	return foul("it closed the stream without opening it")
}

// pipe is the host's side of an open stream.
type pipe struct {
	conn   *Conn
	s      grpc.BidiStreamingClient[driverv1.StreamFrame, driverv1.StreamFrame]
	cancel context.CancelFunc

	data    chan []byte   // from receive to Read
	rest    []byte        // of Read
	ended   chan struct{} // receive is over
	err     error         // why; set before ended is closed
	closing chan struct{}
	once    sync.Once

	writing sync.Mutex
}

// receive takes frames until the stream ends; once the pipe is being closed it discards them.
func (p *pipe) receive() {
	defer close(p.ended)
	defer p.cancel()
	for {
		frame, err := p.s.Recv()
		if p.err = p.end(frame, err); p.err != nil {
			return
		}
		if data := frame.GetData(); len(data) > 0 {
			select {
			case p.data <- data:
			case <-p.closing:
			}
		}
	}
}

// end judges whether a stream ends with what was received.
func (p *pipe) end(frame *driverv1.StreamFrame, err error) error {
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return p.conn.failure(context.Background(), err)
	}
	switch f := frame.GetFrame().(type) {
	case *driverv1.StreamFrame_Data:
		return nil
	case *driverv1.StreamFrame_Close:
		if e := f.Close.GetError(); e != nil {
			return reported(e)
		}
		return io.EOF
	}
	return foul("it sent a frame that is neither data nor close")
}

// Read gives what the plugin sent.
func (p *pipe) Read(b []byte) (int, error) {
	select {
	case <-p.closing:
		return 0, io.ErrClosedPipe
	default:
	}
	if len(p.rest) == 0 {
		select {
		case <-p.closing:
			return 0, io.ErrClosedPipe
		case p.rest = <-p.data:
		case <-p.ended:
			return 0, p.err
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write sends to the plugin. It blocks while the plugin does not read, until Close.
func (p *pipe) Write(b []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	n := 0
	for n < len(b) {
		select {
		case <-p.closing:
			return n, io.ErrClosedPipe
		default:
		}
		chunk := b[n:min(len(b), n+maxFrame)]
		if err := p.s.Send(dataFrame(chunk)); err != nil {
			return n, driver.Errorf(driver.CodeUnreachable, "the stream has ended")
		}
		n += len(chunk)
	}
	return n, nil
}

// Close ends the stream: it tells the plugin, gives it a moment to agree, and releases everything.
func (p *pipe) Close() error {
	p.once.Do(func() {
		close(p.closing)
		late := time.AfterFunc(patience, p.cancel)
		defer late.Stop()
		if p.writing.TryLock() {
			if p.s.Send(closed(nil)) == nil {
				_ = p.s.CloseSend()
			}
			p.writing.Unlock()
		} else {
			p.cancel() // a writer is stuck: the plugin does not read
		}
		<-p.ended
	})
	return nil
}
