package bcx

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// codeNotFound says that a plugin serves no driver of an id.
const codeNotFound = "driver-not-found"

func callOf(r *driverv1.InvokeRequest) driver.Call {
	return driver.Call{Kind: r.GetKind(), Operation: r.GetOperation(),
		Config: json.RawMessage(r.GetConfigJson()), Args: json.RawMessage(r.GetArgsJson())}
}

// operation is the context of an operation.
func (p *plugin) operation(ctx context.Context, d *driver.Driver, r *driverv1.InvokeRequest) *driver.Context {
	c := p.context(ctx, d, r.GetSecrets())
	c.Logger = c.Logger.With("operation", clean(callOf(r).Name(), 128))
	c.IdempotencyKey = r.GetIdempotencyKey()
	c.TraceParent = r.GetTraceparent()
	return c
}

// Invoke runs an operation. When the deadline passes it answers timeout and leaves the operation to itself.
func (p *plugin) Invoke(r *driverv1.InvokeRequest, s grpc.ServerStreamingServer[driverv1.InvokeResponse]) error {
	d, err := p.find(r.GetDriverId())
	if err != nil {
		return s.Send(failed(err))
	}
	ctx, cancel := limited(s.Context(), r.GetTimeoutMs())
	defer cancel()
	progress := make(chan driver.Progress)
	c := p.operation(ctx, d, r)
	c.OnProgress = func(pr driver.Progress) {
		select {
		case progress <- pr:
		case <-ctx.Done():
		}
	}
	done := make(chan *driverv1.InvokeResponse, 1)
	go func() {
		out, err := heard(ctx, p.log, func() (json.RawMessage, error) { return d.Invoke(c, callOf(r)) })
		if err != nil {
			done <- failed(err)
			return
		}
		done <- &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_ResultJson{ResultJson: strings.ToValidUTF8(string(out), "\ufffd")}}
	}()
	for {
		select {
		case pr := <-progress:
			if err := s.Send(progressed(pr)); err != nil {
				return err
			}
		case last := <-done:
			if err := s.Context().Err(); err != nil {
				return status.FromContextError(err).Err()
			}
			return s.Send(last)
		}
	}
}

func progressed(p driver.Progress) *driverv1.InvokeResponse {
	return &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_Progress{Progress: &driverv1.Progress{
		Phase: clean(p.Phase, 64), Message: clean(p.Message, maxText), Done: p.Done, Total: p.Total}}}
}

func failed(err error) *driverv1.InvokeResponse {
	return &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_Error{Error: wireError(err)}}
}

// unsafe clears the mark retryable from an error of an operation that may not run twice.
func unsafe(d *driver.Driver, r *driverv1.InvokeRequest, err error) error {
	var e *driver.Error
	if errors.As(err, &e) && e.Retryable && !d.IsRetrySafe(r.GetKind(), r.GetOperation()) {
		once := *e
		once.Retryable = false
		return &once
	}
	return err
}
