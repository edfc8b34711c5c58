package driver

import (
	"context"
	"errors"
	"fmt"
	"regexp"
)

// The codes that the contract itself and its drivers share. A driver may use others in the same kebab-case form.
const (
	CodeInvalidConfig = "invalid-config"          // the configuration cannot work
	CodeInvalidArgs   = "invalid-args"            // an argument is missing, unknown or outside its value set
	CodeUnsupported   = "unsupported-operation"   // the driver, or this machine, has no such operation
	CodeUnreachable   = "unreachable"             // no connection, or it broke
	CodeAuthFailed    = "auth-failed"             // the controller refused the credentials
	CodeNoCredentials = "credentials-unavailable" // a secret the driver needs was not given
	CodePinMismatch   = "tls-pin-mismatch"        // another key than the pinned one answered
	CodeUntrusted     = "tls-untrusted"           // no pin is known and no certificate authority vouches
	CodeBMCError      = "bmc-error"               // the controller answered an error, or nonsense
	CodeBusy          = "busy"                    // the controller asks to come back later
	CodeTimeout       = "timeout"                 // a deadline passed
	CodeCancelled     = "cancelled"               // the caller gave up
	CodeNotApplied    = "not-applied"             // the controller accepted a write, and reading back shows another value
	CodeDriverError   = "driver-error"            // anything else
	CodeUnavailable   = "unavailable"             // the driver itself is down
)

var codeRE = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Error is a failure of an operation. Code is lower-case kebab-case and at most 64 bytes; Message is one sentence for a
// person and never holds a credential.
type Error struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
	cause     error
}

// Error gives the message.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause, which is for logs only.
func (e *Error) Unwrap() error { return e.cause }

// Again returns a copy marked retryable.
func (e *Error) Again() *Error { c := *e; c.Retryable = true; return &c }

// Errorf makes an Error. A code that is not kebab-case becomes driver-error. A %w operand becomes the cause.
func Errorf(code, format string, args ...any) *Error {
	if len(code) > 64 || !codeRE.MatchString(code) {
		code = CodeDriverError
	}
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// AsError turns any error into an Error: one in err's chain as it is, an ended context into timeout or cancelled, the
// rest into driver-error. It is nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeTimeout, Message: "the operation did not end before its deadline", Retryable: true, cause: err}
	case errors.Is(err, context.Canceled):
		return &Error{Code: CodeCancelled, Message: "the operation was cancelled", cause: err}
	}
	return &Error{Code: CodeDriverError, Message: err.Error(), cause: err}
}
