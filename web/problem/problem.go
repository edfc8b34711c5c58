// Package problem turns errors into HTTP answers: the one table from codes to statuses, and the one place where an error
// that was not written for people becomes an id and a log line.
package problem

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"syscall"

	"github.com/better-compute/bcd/app"
)

// Reasons that have a status of their own, because HTTP has a word for them.
const (
	ReasonMalformed = "malformed-request" // could not be read at all: 400, where a wrong value is 422
	ReasonMediaType = "unsupported-media-type"
	ReasonLength    = "length-required"
	ReasonMethod    = "method-not-allowed"
)

var byReason = map[string]int{
	ReasonMalformed: http.StatusBadRequest,
	ReasonMediaType: http.StatusUnsupportedMediaType,
	ReasonLength:    http.StatusLengthRequired,
	ReasonMethod:    http.StatusMethodNotAllowed,
}

var byCode = map[app.Code]int{
	app.InvalidInput:    http.StatusUnprocessableEntity,
	app.InvalidConfig:   http.StatusUnprocessableEntity,
	app.Unsupported:     http.StatusUnprocessableEntity,
	app.NotFound:        http.StatusNotFound,
	app.Conflict:        http.StatusConflict,
	app.Unauthenticated: http.StatusUnauthorized,
	app.Forbidden:       http.StatusForbidden,
	app.TooLarge:        http.StatusRequestEntityTooLarge,
	app.RateLimited:     http.StatusTooManyRequests,
	app.Unavailable:     http.StatusServiceUnavailable,
	app.StorageFull:     http.StatusInsufficientStorage,
	app.Timeout:         http.StatusGatewayTimeout,
	app.Interrupted:     http.StatusConflict,
	app.Internal:        http.StatusInternalServerError,
}

// Body is the JSON of every error answer.
type Body struct {
	Error Detail `json:"error"`
}

// Detail is an app.Error with the id under which the log knows the request.
type Detail struct {
	app.Error
	RequestID string `json:"requestId"`
}

// Status is the HTTP status of an error.
func Status(e *app.Error) int {
	if s, ok := byReason[e.Reason]; ok {
		return s
	}
	if s, ok := byCode[e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Malformed is the error of a request that could not be read.
func Malformed(format string, args ...any) *app.Error {
	return app.Errorf(app.InvalidInput, ReasonMalformed, format, args...)
}

// Public gives the error to show. What was not written for people is logged once under the request's id and shown as that
// id only.
func Public(ctx context.Context, log *slog.Logger, err error) *app.Error {
	var tooBig *http.MaxBytesError
	e, known := app.AsError(err)
	switch {
	case known && e.Code != app.Internal:
		return e
	case errors.As(err, &tooBig):
		return app.Errorf(app.TooLarge, "body-too-large", "the request is larger than %d bytes", tooBig.Limit).Do("send less at a time")
	case errors.Is(err, syscall.ENOSPC):
		e = app.Errorf(app.StorageFull, "storage-full", "the appliance's disk is full").Do("delete images or events that are no longer needed")
	case errors.Is(err, context.Canceled):
		return app.Errorf(app.Unavailable, "canceled", "the request was ended before it was done").Retryable()
	case errors.Is(err, context.DeadlineExceeded):
		return app.Errorf(app.Timeout, "too-slow", "the appliance took too long to answer").Do("try again").Retryable()
	case errors.Is(err, fs.ErrPermission):
		e = app.Errorf(app.Internal, "permission", "the appliance may not reach one of its files")
	default:
		e = app.Errorf(app.Internal, "internal", "something went wrong inside the appliance")
	}
	if e.WayOut == "" {
		e = e.Do("look for the id %s in the appliance's log", ID(ctx))
	}
	log.Error("request failed", "id", ID(ctx), "error", err)
	return e
}

// Write answers a request with an error as JSON.
func Write(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e := Public(r.Context(), log, err)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if e.Code == app.RateLimited || e.Code == app.Unavailable {
		w.Header().Set("Retry-After", "30")
	}
	w.WriteHeader(Status(e))
	_ = json.NewEncoder(w).Encode(Body{Error: Detail{Error: *e, RequestID: ID(r.Context())}})
}

type idKey struct{}

// WithID gives a context a fresh request id.
func WithID(ctx context.Context) (context.Context, string) {
	var b [6]byte
	_, _ = rand.Read(b[:])
	id := hex.EncodeToString(b[:])
	return context.WithValue(ctx, idKey{}, id), id
}

// ID is the request id of a context, "" when it has none.
func ID(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}
