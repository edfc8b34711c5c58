package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Code classifies an error for a caller. Each code maps to one HTTP status, in web.
type Code string

// The codes that may reach a person or a client.
const (
	InvalidInput    Code = "INVALID_INPUT"   // a field of the request is wrong; Field names it
	InvalidConfig   Code = "INVALID_CONFIG"  // a configuration, definition or binding is wrong
	Unsupported     Code = "UNSUPPORTED"     // the machine, driver or build cannot do this
	NotFound        Code = "NOT_FOUND"       //
	Conflict        Code = "CONFLICT"        // the thing is in a state that refuses this
	Unauthenticated Code = "UNAUTHENTICATED" //
	Forbidden       Code = "FORBIDDEN"       //
	TooLarge        Code = "TOO_LARGE"       //
	RateLimited     Code = "RATE_LIMITED"    //
	Unavailable     Code = "UNAVAILABLE"     // something needed is down; trying later may help
	StorageFull     Code = "STORAGE_FULL"    //
	Timeout         Code = "TIMEOUT"         // a deadline passed
	Interrupted     Code = "INTERRUPTED"     // the end of an action is unknown and only a person can settle it
	Internal        Code = "INTERNAL"        // anything not written for a person; shown as an id only
)

// Error is an error a person can act on.
type Error struct {
	Code    Code   `json:"code"`
	Reason  string `json:"reason,omitempty"` // kebab-case, stable, finer than Code: "agent-not-up", "bmc-driver-unsupported"
	Field   string `json:"field,omitempty"`  // JSON pointer or field name of the input at fault
	Message string `json:"message"`          // one sentence, what happened
	WayOut  string `json:"wayOut,omitempty"` // one sentence, what to do next
	Retry   bool   `json:"retryable,omitempty"`
	cause   error
}

// Error gives the sentence and, after it, the way out.
func (e *Error) Error() string {
	s := e.Message
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	if e.WayOut != "" {
		s += " (" + e.WayOut + ")"
	}
	return s
}

// Unwrap gives the cause, which is for the log only.
func (e *Error) Unwrap() error { return e.cause }

// Errorf makes an Error of a code with a formatted sentence; a %w operand becomes the cause.
func Errorf(code Code, reason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Reason: reason, Message: err.Error(), cause: errors.Unwrap(err)}
}

// At returns a copy that names the field at fault.
func (e *Error) At(field string) *Error { c := *e; c.Field = field; return &c }

// Do returns a copy that names the way out.
func (e *Error) Do(format string, args ...any) *Error {
	c := *e
	c.WayOut = fmt.Sprintf(format, args...)
	return &c
}

// Retryable returns a copy marked as worth another try.
func (e *Error) Retryable() *Error { c := *e; c.Retry = true; return &c }

// Invalid is an InvalidInput error at a field.
func Invalid(field, format string, args ...any) *Error {
	return Errorf(InvalidInput, "invalid-field", format, args...).At(field)
}

// lists are the commands that list what there is of a noun.
var lists = map[string]string{
	"approval": "bcd approval list", "discovery": "bcd discovery list", "driver": "bcd driver list", "image": "bcd image list", "lease": "bcd lease list",
	"machine": "bcd machine list", "plugin": "bcd plugin list", "pool": "bcd pool list", "profile": "bcd profile list", "question": "bcd port list",
	"secret": "bcd secret list", "subnet": "bcd subnet list", "token": "bcd token list", "user": "bcd user list", "workflow": "bcd workflow list",
}

// Missing is a NotFound error for a noun and its id. Its way out is the list of what there is, where a command shows one.
func Missing(noun, id string) *Error {
	e := Errorf(NotFound, noun+"-not-found", "there is no %s %q", noun, id)
	if list := lists[noun]; list != "" {
		e = e.Do("%s shows those there are", list)
	}
	return e
}

// AsError finds the Error in err, or reports false.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// CodeOf is the code of err: "" for nil, Internal for what is not an Error.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := AsError(err); ok {
		return e.Code
	}
	return Internal
}

// Problems lists the Errors joined in err, each once, in the order of their fields. What is not an Error becomes an
// Internal one.
func Problems(err error) []*Error {
	var out []*Error
	var walk func(error)
	walk = func(err error) {
		if err == nil {
			return
		}
		if e, ok := err.(*Error); ok { //nolint:errorlint // it walks the tree itself
			out = append(out, e)
			return
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				walk(one)
			}
			return
		}
		if e, ok := AsError(err); ok {
			out = append(out, e)
			return
		}
		out = append(out, Errorf(Internal, "", "%w", err))
	}
	walk(err)
	slices.SortStableFunc(out, func(a, b *Error) int { return strings.Compare(a.Field, b.Field) })
	return out
}
