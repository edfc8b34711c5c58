package ipmi

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// terminalRE matches the escape sequences of terminals.
var terminalRE = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])`)

// clean makes one line of printable text of what a BMC says, at most n runes long.
func clean(s string, n int) string {
	s = terminalRE.ReplaceAllString(s, "")
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r): // Cf: marks that turn the direction of writing
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
	return clip(strings.Join(strings.Fields(s), " "), n)
}

// clip bounds a text to n runes.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n]) + "…"
}

// value cleans a field of an inventory and turns what firmware writes when it has nothing to say into nothing.
func value(s string) string {
	s = clean(s, 128)
	switch strings.ToLower(strings.TrimRight(s, ". ")) {
	case "to be filled by o.e.m", "default string", "system serial number", "system product name", "system manufacturer",
		"chassis serial number", "base board serial number", "not specified", "not available", "not applicable",
		"none", "n/a", "na", "unknown", "unspecified", "empty", "invalid", "oem", "null", "<bad index>", "0123456789",
		"123456789", "1234567890", "00000000", "0":
		return ""
	}
	if strings.Trim(s, "-_.*?\ufffd") == "" {
		return ""
	}
	return s
}

// first gives the first value that says something.
func first(values ...string) string {
	for _, v := range values {
		if v := value(v); v != "" {
			return v
		}
	}
	return ""
}

// fields reads "Key : value" lines. Only wanted keys count, and of each its first line, so that a value with a line break
// in it cannot replace another one. again lists keys that came twice, in order.
func fields(text string, wanted ...string) (found map[string]string, again []string) {
	found = map[string]string{}
	for line := range strings.Lines(text) {
		key, val, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key = strings.TrimSpace(key)
		for _, w := range wanted {
			if key != w {
				continue
			}
			if _, has := found[key]; has {
				again = append(again, key)
			} else {
				found[key] = strings.TrimSpace(val)
			}
		}
	}
	return found, again
}
