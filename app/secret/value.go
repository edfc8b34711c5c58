package secret

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"

	"github.com/better-compute/bcd/app"
)

// Limits of a secret's value.
const (
	MaxFields = 32
	MaxBytes  = 16 << 10 // of the whole value
)

const redacted = "[secret]"

// Value is an opened secret. Printed, logged or marshalled it says only that it is one.
type Value struct {
	text   string
	fields map[string]string
}

// Text makes a value of one string.
func Text(s string) Value { return Value{text: s} }

// Fields makes a value of named strings.
func Fields(m map[string]string) Value { return Value{fields: maps.Clone(m)} }

// Login makes the credential of a BMC.
func Login(username, password string) Value {
	return Fields(map[string]string{"username": username, "password": password})
}

// Text gives the one string, or reports false for an object.
func (v Value) Text() (string, bool) { return v.text, v.fields == nil }

// Field gives one member of an object.
func (v Value) Field(name string) (string, bool) { s, ok := v.fields[name]; return s, ok }

// Map gives a copy of the members: nil for a string.
func (v Value) Map() map[string]string { return maps.Clone(v.fields) }

// String hides the value.
func (Value) String() string { return redacted }

// Format hides the value for every verb, %#v too.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue hides the value.
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON hides the value.
func (Value) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// UnmarshalJSON reads a string or an object of strings. Its errors never quote the input.
func (v *Value) UnmarshalJSON(b []byte) error {
	wrong := app.Invalid("value", "a secret is a string or an object of strings")
	var s string
	if json.Unmarshal(b, &s) == nil && string(b) != "null" {
		*v = Text(s)
		return nil
	}
	var m map[string]*string
	if json.Unmarshal(b, &m) != nil || m == nil {
		return wrong
	}
	fields := make(map[string]string, len(m))
	for k, p := range m {
		if p == nil {
			return wrong
		}
		fields[k] = *p
	}
	*v = Value{fields: fields}
	return nil
}

// Validate checks the limits.
func (v Value) Validate() error {
	size := len(v.text)
	for k, s := range v.fields {
		if k == "" || len(k) > 64 {
			return app.Invalid("value", "a member's name has 1 to 64 bytes")
		}
		size += len(k) + len(s)
	}
	switch {
	case len(v.fields) > MaxFields:
		return app.Invalid("value", "holds %d members, the limit is %d", len(v.fields), MaxFields)
	case size > MaxBytes:
		return app.Invalid("value", "is %d bytes long, the limit is %d", size, MaxBytes)
	case size == 0:
		return app.Invalid("value", "is empty")
	}
	return nil
}

func (v Value) plain() ([]byte, error) {
	if v.fields == nil {
		return json.Marshal(v.text)
	}
	return json.Marshal(v.fields)
}
