package host

import (
	"errors"
	"fmt"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// refusal is a reason for which starting again does not help: the plugin waits until pins or configuration change.
type refusal struct{ err error }

// Error gives the reason.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap gives what it wraps.
func (r *refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &refusal{fmt.Errorf(format, args...)} }

// isRefusal reports whether a start failed for a reason that time does not heal.
func isRefusal(err error) bool {
	var r *refusal
	var c *sandbox.ConfigError
	return errors.As(err, &r) || errors.As(err, &c) || errors.Is(err, bcx.ErrProtocol)
}
