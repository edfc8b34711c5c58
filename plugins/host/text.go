package host

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes text from a plugin harmless: bytes that are no UTF-8, control characters, and characters that turn the
// direction of writing or have no width are written as escapes.
func printable(s string) string {
	if strings.IndexFunc(s, hostile) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			b.WriteString(escape('x', uint32(s[i]), 2))
		case !hostile(r):
			b.WriteRune(r)
		case r == '\t':
			b.WriteByte(' ')
		case r < 0x100:
			b.WriteString(escape('x', uint32(r), 2))
		case r < 0x10000:
			b.WriteString(escape('u', uint32(r), 4))
		default:
			b.WriteString(escape('U', uint32(r), 8))
		}
	}
	return b.String()
}

func hostile(r rune) bool {
	return r == utf8.RuneError || unicode.Is(unicode.C, r) || r == '\u2028' || r == '\u2029'
}

func escape(kind byte, v uint32, digits int) string {
	const hex = "0123456789abcdef"
	out := make([]byte, 2+digits)
	out[0], out[1] = '\\', kind
	for i := range digits {
		out[1+digits-i] = hex[v>>(4*i)&0xf]
	}
	return string(out)
}
