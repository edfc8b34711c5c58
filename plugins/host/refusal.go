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

// wayOut tells a person what helps against a refusal.
func wayOut(name string, bundled bool, why error) string {
	var c *sandbox.ConfigError
	switch {
	case errors.As(why, &c):
		return "correct what config.toml says below [plugins] and restart bcd"
	case bundled:
		return "install bcd anew: the plugin is inside it"
	}
	return "put its right file back, or bring its pin in line with bcd plugin pin " + name + "; then bcd takes it up, as it does on SIGHUP"
}

// isRefusal reports whether a start failed for a reason that time does not heal.
func isRefusal(err error) bool {
	var r *refusal
	var c *sandbox.ConfigError
	return errors.As(err, &r) || errors.As(err, &c) || errors.Is(err, bcx.ErrProtocol)
}
