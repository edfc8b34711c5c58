package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
)

// maxFile bounds a request read from a file, in bytes.
const maxFile = 1 << 20

// readFile reads one YAML or JSON document.
func readFile(name string, stdin io.Reader) (any, error) {
	raw, err := readAll(name, stdin)
	if err != nil {
		return nil, err
	}
	var v any
	if err := yaml.Unmarshal(raw, &v); err != nil {
		return nil, app.Invalid("file", "%s is neither YAML nor JSON: %v", name, err)
	}
	return v, nil
}

// readAll reads a small file, "-" being standard input.
func readAll(name string, stdin io.Reader) ([]byte, error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, app.Invalid("file", "%v", err)
		}
		defer f.Close()
		r = f
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(raw) > maxFile {
		return nil, app.Errorf(app.TooLarge, "file-too-large", "%s is larger than %d bytes", name, maxFile)
	}
	return raw, nil
}

// prompt asks questions on a terminal, or reads the answers line by line from other input, where they are not repeated.
type prompt struct {
	raw      io.Reader
	lines    *bufio.Reader
	out      io.Writer
	terminal bool
}

func newPrompt(in io.Reader, out io.Writer) *prompt {
	f, ok := in.(*os.File)
	return &prompt{raw: in, lines: bufio.NewReader(io.LimitReader(in, maxFile)), out: out, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// line asks for one line.
func (p *prompt) line(question string) (string, error) {
	if p.terminal {
		fmt.Fprint(p.out, question)
	}
	line, err := p.lines.ReadString('\n')
	if err != nil && line == "" {
		return "", app.Invalid(strings.TrimRight(question, ": ?"), "was asked for, and the input ended").Do("type it, or pipe a line into the command")
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// secret asks for one line without echo.
func (p *prompt) secret(question string) (string, error) {
	f, ok := p.raw.(*os.File)
	if !ok || !p.terminal {
		return p.line(question)
	}
	fmt.Fprint(p.out, question)
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(p.out)
	return string(b), err
}
