package boot

import "strings"

// compareVersions orders like rpm: runs of digits as numbers, runs of letters as text, a tilde before everything.
func compareVersions(a, b string) int {
	for a != "" || b != "" {
		a, b = strings.TrimLeft(a, "-_.+^"), strings.TrimLeft(b, "-_.+^")
		if strings.HasPrefix(a, "~") != strings.HasPrefix(b, "~") {
			if a != "" && a[0] == '~' {
				return -1
			}
			return 1
		}
		a, b = strings.TrimPrefix(a, "~"), strings.TrimPrefix(b, "~")
		if a == "" || b == "" {
			return len(a) - len(b)
		}
		x, y := run(a), run(b)
		a, b = a[len(x):], b[len(y):]
		dx, dy := digit(x[0]), digit(y[0])
		switch {
		case dx && !dy:
			return 1
		case dy && !dx:
			return -1
		case dx:
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// run is the leading run of digits or of anything else up to a digit or separator; at least one byte.
func run(s string) string {
	i := 1
	for i < len(s) && digit(s[i]) == digit(s[0]) && !strings.ContainsRune("-_.+^~", rune(s[i])) {
		i++
	}
	return s[:i]
}

// compareUAPI orders versions as systemd-boot does (UAPI.10, "Version Format Specification"): a tilde before everything, then
// the end, a hyphen, a caret, a dot, letters, and numbers last.
func compareUAPI(a, b string) int {
	for {
		a, b = skip(a), skip(b)
		if a == "" && b == "" {
			return 0
		}
		for _, c := range []byte{'~', 0, '-', '^', '.'} {
			x, y := leads(a, c), leads(b, c)
			if x != y {
				return sign(y, x)
			}
			if x && c != 0 {
				a, b = a[1:], b[1:]
			}
		}
		var c int
		if (a != "" && digit(a[0])) || (b != "" && digit(b[0])) {
			c, a, b = numbers(a, b)
		} else {
			c, a, b = letters(a, b)
		}
		if c != 0 {
			return c
		}
	}
}

// leads reports whether s begins with c; 0 stands for the end.
func leads(s string, c byte) bool {
	if c == 0 {
		return s == ""
	}
	return s != "" && s[0] == c
}

// sign is 1 when only the other is the older one, else -1.
func sign(other, this bool) int {
	if other && !this {
		return 1
	}
	return -1
}

// skip drops what is part of no version from the front.
func skip(s string) string {
	return strings.TrimLeftFunc(s, func(c rune) bool {
		return (c >= 0x80 || !digit(byte(c)) && !letter(byte(c))) && !strings.ContainsRune("-.~^", c)
	})
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func prefix(s string, is func(byte) bool) (head, rest string) {
	i := 0
	for i < len(s) && is(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

// numbers compares what both begin with as numbers; nothing is zero.
func numbers(a, b string) (c int, restA, restB string) {
	x, a := prefix(a, digit)
	y, b := prefix(b, digit)
	x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
	if len(x) != len(y) {
		return len(x) - len(y), a, b
	}
	return strings.Compare(x, y), a, b
}

// letters compares what both begin with as text; capitals come first.
func letters(a, b string) (c int, restA, restB string) {
	x, a := prefix(a, letter)
	y, b := prefix(b, letter)
	return strings.Compare(x, y), a, b
}
