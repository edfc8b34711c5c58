package app

import (
	"encoding/json"
	"fmt"
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

// Took writes how long something took, for people: never as nothing.
func Took(d time.Duration) string {
	switch {
	case d < 50*time.Millisecond:
		return "less than 0.1 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
}
