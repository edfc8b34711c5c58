package bcx

import (
	"strings"
	"unicode"
)

// clean makes text from the other side fit for logs and pages: valid UTF-8, on one line, without control, format and
// direction characters, at most limit bytes.
func clean(s string, limit int) string {
	long := len(s) > limit
	if long {
		s = s[:limit]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == unicode.ReplacementChar:
			return '?'
		case unicode.IsSpace(r), unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	s = strings.TrimSpace(s)
	if long {
		s += "…"
	}
	return s
}
