package host

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
)

// PinsName is the file of the plugins directory that names the plugins.
const PinsName = "pins"

const (
	maxPins     = 1 << 20 // bytes of the pins file
	maxPlugins  = 64
	maxSentence = 300 // bytes of text from outside in a sentence
)

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Pin names a plugin and the SHA-256 its file must have.
type Pin struct {
	Name   string
	SHA256 string // 64 lower-case hex digits
}

// Issue is a line of the pins file that names no plugin that can be run. Line counts from 1; 0 is the whole file.
type Issue struct {
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// String gives "line 3 of pins: ...".
func (i Issue) String() string {
	if i.Line == 0 {
		return i.Message
	}
	return fmt.Sprintf("line %d of %s: %s", i.Line, PinsName, i.Message)
}

// CheckName reports why a name cannot be a plugin's; nil when it can. It is a file's name in the plugins directory.
func CheckName(name string) error {
	if !nameRE.MatchString(name) || strings.Contains(name, "..") || name == PinsName {
		return app.Invalid("name", "%q is no plugin's name", clip(name)).
			Do("use up to 63 letters, digits, dots, hyphens and underscores, without / and ..")
	}
	return nil
}

// ParsePins reads a pins file in the format of sha256sum: "<sha256>  <name>", one or more spaces, an optional * before the
// name. Lines that start with # and blank ones are skipped. A line that cannot be read is an issue and the rest still
// holds; a name that stands twice runs not at all, for nobody can say which line is meant. Pins are sorted by name.
func ParsePins(text []byte) ([]Pin, []Issue) {
	var issues []Issue
	at := map[string]int{}
	twice := map[string]bool{}
	var pins []Pin
	for i, line := range bytes.Split(text, []byte("\n")) {
		line := strings.TrimSpace(string(line))
		if line == "" || line[0] == '#' {
			continue
		}
		p, err := parsePin(line)
		if err != nil {
			issues = append(issues, Issue{i + 1, err.Error()})
			continue
		}
		if first, seen := at[p.Name]; seen {
			twice[p.Name] = true
			issues = append(issues, Issue{i + 1, fmt.Sprintf("%s stands in line %d already; neither is used", p.Name, first)})
			continue
		}
		at[p.Name] = i + 1
		pins = append(pins, p)
	}
	pins = slices.DeleteFunc(pins, func(p Pin) bool { return twice[p.Name] })
	slices.SortFunc(pins, func(a, b Pin) int { return cmp.Compare(a.Name, b.Name) })
	if len(pins) > maxPlugins {
		issues = append(issues, Issue{0, fmt.Sprintf("%d plugins are pinned, only the first %d by name are run", len(pins), maxPlugins)})
		pins = pins[:maxPlugins]
	}
	return pins, issues
}

func parsePin(line string) (Pin, error) {
	sum, name, ok := strings.Cut(line, " ")
	if !ok {
		return Pin{}, errors.New(`it is not "<sha256>  <name>"`)
	}
	sum = strings.ToLower(sum)
	if b, err := hex.DecodeString(sum); err != nil || len(b) != 32 {
		return Pin{}, errors.New("it does not begin with a SHA-256 of 64 hex digits")
	}
	name = strings.TrimPrefix(strings.TrimLeft(name, " "), "*")
	if CheckName(name) != nil {
		return Pin{}, fmt.Errorf("%q is no plugin's name: a plain file name without / and .. is needed", clip(name))
	}
	return Pin{name, sum}, nil
}

// readPins reads the pins file of a directory. A directory or file that others may write is refused as a whole; no file
// means no pins, with an issue.
func readPins(dir string) ([]Pin, []Issue, error) {
	if err := checkDir(dir); err != nil {
		return nil, nil, err
	}
	f, err := openOwn(filepath.Join(dir, PinsName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, []Issue{{0, fmt.Sprintf("%s has no file %q, so no plugin of it runs", dir, PinsName)}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPins+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the pins: %w", err)
	}
	if len(text) > maxPins {
		return nil, nil, fmt.Errorf("the pins file is longer than %d bytes", maxPins)
	}
	pins, issues := ParsePins(text)
	return pins, issues, nil
}

// checkDir refuses a plugins directory in which others could put files.
func checkDir(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("the plugins directory cannot be read: %w", err)
	case !st.IsDir():
		return fmt.Errorf("%s is no directory", dir)
	}
	return checkOwn(dir, st)
}

// openOwn opens a plain file that nobody but root and this account may write. It follows no link and waits for no pipe.
func openOwn(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s is a link; the file itself must stand there", path)
		}
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	st, err := f.Stat()
	switch {
	case err == nil && !st.Mode().IsRegular():
		err = fmt.Errorf("%s is no plain file", path)
	case err == nil:
		err = checkOwn(path, st)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkOwn(path string, st os.FileInfo) error {
	if st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s may be written by others (mode %04o): take that right away with chmod go-w", path, st.Mode().Perm())
	}
	if uid, ok := ownerOf(st); ok && uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d: only root and bcd's own account may own plugins", path, uid)
	}
	return nil
}

// clip bounds text from outside and takes out what a terminal or page could be fooled with.
func clip(s string) string {
	s = printable(s)
	if len(s) <= maxSentence {
		return s
	}
	return strings.ToValidUTF8(s[:maxSentence], "") + "…"
}
