package driver

import (
	"context"
	"log/slog"
	"maps"
	"slices"
)

// Progress is how far an operation is. Done and Total count the unit that the phase implies (bytes for a write); Total
// is 0 when it is not known.
type Progress struct {
	Phase   string `json:"phase"`
	Message string `json:"message,omitempty"`
	Done    int64  `json:"done,omitempty"`
	Total   int64  `json:"total,omitempty"`
}

// Secrets gives the values of secrets by the name or reference they were delivered under: "username" and "password" (and
// "newPassword" on a rotation) for operations on a machine's BMC, else the reference that stands in a config field.
// Only what was delivered with the call resolves.
type Secrets interface {
	Resolve(ctx context.Context, name string) (string, error)
}

// SecretMap is Secrets of values already known.
type SecretMap map[string]string

// Resolve gives the value, or credentials-unavailable.
func (m SecretMap) Resolve(_ context.Context, name string) (string, error) {
	if v, ok := m[name]; ok {
		return v, nil
	}
	return "", Errorf(CodeNoCredentials, "the secret %q was not given to the driver", name)
}

// Names lists what resolves, sorted: what goes to a plugin with the call.
func (m SecretMap) Names() []string { return slices.Sorted(maps.Keys(m)) }

// Context is what one operation knows about its call: the cancellation and deadline of the embedded context, and the
// fields. The zero value of each field is usable.
type Context struct {
	context.Context // of this one call; a Context is never kept

	Secrets        Secrets
	Logger         *slog.Logger
	IdempotencyKey string         // the same on every delivery of one attempt; "" when the caller has none
	TraceParent    string         // W3C traceparent of the caller, or ""
	OnProgress     func(Progress) // called from the operation's goroutine
}

// NewContext makes a Context without secrets, progress or key.
func NewContext(ctx context.Context) *Context { return &Context{Context: ctx} }

// With returns a copy that runs under another context.
func (c *Context) With(ctx context.Context) *Context { d := *c; d.Context = ctx; return &d }

// Emit reports progress to the caller, if it listens.
func (c *Context) Emit(p Progress) {
	if c.OnProgress != nil {
		c.OnProgress(p)
	}
}

// Secret resolves a delivered secret, or fails with credentials-unavailable.
func (c *Context) Secret(name string) (string, error) {
	if c.Secrets == nil {
		return SecretMap(nil).Resolve(c, name)
	}
	return c.Secrets.Resolve(c, name)
}

// Log gives the call's logger, or one that discards.
func (c *Context) Log() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}
