package inventory

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// maxFile is the most that is read of an ordinary attribute, in bytes.
const maxFile = 4096

// read gives an attribute below dir without surrounding white space, "" when it cannot be read.
func read(dir, name string) string {
	return strings.TrimSpace(string(readBytes(filepath.Join(dir, name), maxFile)))
}

// readBytes gives at most limit bytes of a file, nil when it cannot be read. A named pipe or device does not hang it: only
// regular files, which sysfs and procfs attributes are, are opened.
func readBytes(path string, limit int64) []byte {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, limit)) // what was read before an error is still what the kernel said
	return b
}

// text makes a string of firmware or a device fit to be shown: valid UTF-8, no control characters, trimmed, bounded.
func text(s string) string {
	s = strings.ToValidUTF8(s, "")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar || r == 0x2028 || r == 0x2029 || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}
