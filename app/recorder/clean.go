package recorder

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/better-compute/bcd/app"
)

// Limits of one record.
const (
	MaxMessage = 1000      // bytes of Message
	MaxData    = 8 << 10   // bytes of Data; larger or malformed ones are left out
	maxWord    = 128       // bytes of Kind, Actor and Workflow
	maxSkew    = time.Hour // how far a record's time may be ahead of our clock
)

// clean bounds a record and makes its text plain: it may come from the wire.
func clean(r app.Record, now time.Time) app.Record {
	if r.Time.IsZero() || r.Time.After(now.Add(maxSkew)) {
		r.Time = now
	}
	r.Time = r.Time.UTC()
	if r.Level != "warn" && r.Level != "error" {
		r.Level = "info"
	}
	r.Message = withoutKeys(Plain(r.Message, MaxMessage))
	for _, s := range []*string{&r.Kind, &r.Actor, &r.Workflow, &r.MachineID} {
		if len(*s) > maxWord || !plainASCII(*s) {
			*s = Plain(*s, maxWord)
		}
	}
	if len(r.Data) > MaxData || (len(r.Data) > 0 && !json.Valid(r.Data)) {
		r.Data = nil
	}
	return r
}

// bootKey is where the address of a boot's file holds its key, which opens the boot's data. Firmware and loaders print on the
// console what they load.
var bootKey = regexp.MustCompile(`/boot/[A-Za-z0-9_-]{16,}/`)

// withoutKeys takes the keys of boots out of a text.
func withoutKeys(s string) string {
	if !strings.Contains(s, "/boot/") {
		return s
	}
	return bootKey.ReplaceAllString(s, "/boot/KEY/")
}

// Plain is text from the wire as a person may see it on one line: valid UTF-8 of about limit bytes, without terminal control,
// control characters and marks that turn the direction of text.
func Plain(s string, limit int) string {
	if len(s) <= limit && plainASCII(s) {
		return s
	}
	if len(s) > 8*limit { // escape sequences go first, but not all of a flood is looked at
		s = s[:8*limit]
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escape(s[i:])
			continue
		}
		c, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case c == '\n' || c == '\t' || c == '\r':
			b.WriteByte(' ')
		case hidden(c):
			continue
		default:
			b.WriteRune(c) // a broken octet becomes U+FFFD
		}
		if b.Len() >= limit {
			if i < len(s) {
				b.WriteString("…")
			}
			break
		}
	}
	return b.String()
}

func plainASCII(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// hidden reports control characters, and those that would make text look like other text.
func hidden(c rune) bool {
	return c < 0x20 || c >= 0x7f && c < 0xa0 || c >= 0x200b && c <= 0x200f || c >= 0x2028 && c <= 0x202e || c >= 0x2060 && c <= 0x2069 || c == 0xfeff
}

// escape is the length of the terminal control sequence that s begins with.
func escape(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[': // CSI: parameters and intermediates, then one final octet
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x7e {
				return i
			}
		}
		return len(s)
	case ']', 'P', '_', '^', 'X': // strings: up to BEL or ESC \
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
			if s[i] == '\n' {
				return i
			}
		}
		return len(s)
	case '(', ')', '#', ' ':
		return min(3, len(s))
	}
	return 2
}
