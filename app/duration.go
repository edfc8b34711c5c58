package app

import (
	"encoding/json"
	"time"
)

// Duration is a time.Duration that reads and writes as "1h30m" in JSON.
type Duration time.Duration

// MarshalJSON writes the Go form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads the Go form.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return Invalid("duration", "a duration is a string such as \"10m\"")
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return Invalid("duration", "%q is not a duration such as \"10m\"", clip(s, 40))
	}
	*d = Duration(v)
	return nil
}
