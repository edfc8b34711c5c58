package bcx

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// duplex is the plugin's side of a byte stream.
type duplex = grpc.BidiStreamingServer[driverv1.StreamFrame, driverv1.StreamFrame]

// Stream opens a byte stream and carries it until one side closes it.
func (p *plugin) Stream(s duplex) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	open := first.GetOpen()
	if open == nil {
		return status.Error(codes.InvalidArgument, "the first frame must be open")
	}
	d, err := p.find(open.GetDriverId())
	if err != nil {
		return s.Send(closed(err))
	}
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	rwc, err := p.openStream(ctx, cancel, d, open)
	if err != nil {
		return s.Send(closed(unsafe(d, open, err)))
	}
	defer rwc.Close()
	if err := s.Send(dataFrame(nil)); err != nil {
		return err
	}
	return pump(s, rwc)
}

// openStream runs the operation. The timeout ends the context only while the operation has not answered: an open stream
// has no deadline.
func (p *plugin) openStream(ctx context.Context, cancel context.CancelCauseFunc, d *driver.Driver, r *driverv1.InvokeRequest) (io.ReadWriteCloser, error) {
	in := func() bool { return true }
	if ms := r.GetTimeoutMs(); ms != 0 {
		in = time.AfterFunc(milliseconds(ms), func() { cancel(context.DeadlineExceeded) }).Stop
	}
	type answer struct {
		rwc io.ReadWriteCloser
		err error
	}
	opened := make(chan answer)
	go func() {
		var a answer
		defer func() {
			select {
			case opened <- a:
			case <-ctx.Done():
				if a.rwc != nil {
					a.rwc.Close() // nobody waits for it any more
				}
			}
		}()
		defer contain(p.log, &a.err)
		a.rwc, a.err = d.Stream(p.operation(ctx, d, r), callOf(r))
	}()
	select {
	case a := <-opened:
		if !in() && a.rwc != nil {
			a.rwc.Close()
			return nil, context.DeadlineExceeded
		}
		return a.rwc, a.err
	case <-ctx.Done():
		in()
		return nil, context.Cause(ctx)
	}
}

// pump carries bytes both ways until either side ends.
func pump(s duplex, rwc io.ReadWriteCloser) error {
	stop := make(chan struct{})
	defer close(stop)
	chunks := make(chan *driverv1.StreamFrame)
	go func() {
		buf := make([]byte, maxFrame)
		for {
			n, err := rwc.Read(buf)
			frame := dataFrame(bytes.Clone(buf[:n]))
			if err != nil && n == 0 {
				frame = closed(err)
			}
			select {
			case chunks <- frame:
			case <-stop:
				return
			}
			if err != nil && n == 0 {
				return
			}
		}
	}()
	hostDone := make(chan error, 1)
	go func() { hostDone <- fromHost(s, rwc) }()
	for {
		select {
		case frame := <-chunks:
			if err := s.Send(frame); err != nil || frame.GetClose() != nil {
				return err
			}
		case err := <-hostDone:
			if err != nil {
				return s.Send(closed(err))
			}
			return nil
		}
	}
}

// fromHost writes what the host sends until it closes the stream. The error is the stream's own.
func fromHost(s duplex, w io.Writer) error {
	for {
		frame, err := s.Recv()
		if err != nil || frame.GetClose() != nil {
			return nil
		}
		if data := frame.GetData(); len(data) > 0 {
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
	}
}

func dataFrame(b []byte) *driverv1.StreamFrame {
	return &driverv1.StreamFrame{Frame: &driverv1.StreamFrame_Data{Data: b}}
}

// closed ends a stream: as it should for nil and io.EOF.
func closed(err error) *driverv1.StreamFrame {
	end := &driverv1.StreamClose{}
	if err != nil && !errors.Is(err, io.EOF) {
		end.Error = wireError(err)
	}
	return &driverv1.StreamFrame{Frame: &driverv1.StreamFrame_Close{Close: end}}
}
