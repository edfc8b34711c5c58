package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
)

// body is a request on its way from arguments and flags.
type body struct {
	cmd    *cobra.Command
	args   []argument
	fields []field
	secret []secretField
	file   *string
}

// argument is a member that is named without a flag.
type argument struct {
	path []string
	doc  string
}

// field is one flag of a body: where its value goes.
type field struct {
	path []string
	flag string
	get  func() (any, error)
}

// secretField is a member whose value no command line may show. It is asked for when its flag says so, or when it must be
// there and its neighbours are.
type secretField struct {
	path []string
	need bool
	flag *bool
}

// newBody adds a flag for each member of a request, nested structs as --outer.inner, and -f for a whole request as YAML or
// JSON, which arguments and flags override. args are the members that come as arguments instead. It is nil when the route
// has no request.
func newBody(cmd *cobra.Command, t reflect.Type, args []string) *body {
	if t == nil {
		return nil
	}
	b := &body{cmd: cmd}
	b.walk(t, nil, args)
	if len(b.fields)+len(b.args)+len(b.secret) > 0 {
		b.file = cmd.Flags().StringP("file", "f", "", "read the request from a YAML or JSON file, - for standard input")
	}
	return b
}

// fromFile reports whether the request comes from a file, which may hold what arguments else give.
func (b *body) fromFile() bool { return b != nil && b.file != nil && *b.file != "" }

// request puts a request together. given are the arguments, as many as there are of b.args or fewer.
func (b *body) request(given []string) (any, error) {
	if b == nil {
		return nil, nil
	}
	out := map[string]any{}
	if b.fromFile() {
		v, err := readFile(*b.file, b.cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, app.Invalid("file", "%s does not hold one object", *b.file)
		}
		out = m
	}
	for i, v := range given {
		put(out, b.args[i].path, v)
	}
	for _, f := range b.fields {
		if !b.cmd.Flags().Changed(f.flag) {
			continue
		}
		v, err := f.get()
		if err != nil {
			return nil, err
		}
		put(out, f.path, v)
	}
	return out, b.askSecrets(out)
}

// askSecrets asks for each secret that the flags want, or that the rest of the request needs.
func (b *body) askSecrets(out map[string]any) error {
	input := newPrompt(b.cmd.InOrStdin(), b.cmd.ErrOrStderr())
	for _, s := range b.secret {
		parent, there := at(out, s.path[:len(s.path)-1])
		_, given := parent[s.path[len(s.path)-1]]
		if given || !*s.flag && (!s.need || !there) {
			continue
		}
		v, err := input.secret(strings.Join(s.path, ".") + ": ")
		if err != nil {
			return err
		}
		put(out, s.path, v)
	}
	return nil
}

// at is the object at a path; false when there is none.
func at(m map[string]any, path []string) (map[string]any, bool) {
	for _, p := range path {
		next, ok := m[p].(map[string]any)
		if !ok {
			return nil, false
		}
		m = next
	}
	return m, true
}

func put(m map[string]any, path []string, v any) {
	for ; len(path) > 1; path = path[1:] {
		next, ok := m[path[0]].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[path[0]] = next
		}
		m = next
	}
	m[path[0]] = v
}

// walk adds the members of a struct.
func (b *body) walk(t reflect.Type, prefix, args []string) {
	if t = pointed(t); t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" || name == "-" || len(prefix) > 2 {
			continue
		}
		path := append(slices.Clone(prefix), name)
		doc := sf.Tag.Get("doc")
		switch {
		case len(prefix) == 0 && slices.Contains(args, name):
			b.args = append(b.args, argument{path, doc})
		case sf.Tag.Get("secret") != "":
			ask := b.cmd.Flags().Bool(strings.Join(path, "."), false, "ask for it: "+doc)
			b.secret = append(b.secret, secretField{path, !strings.Contains(opts, "omit"), ask})
		case pointed(sf.Type).Kind() == reflect.Struct && !isText(pointed(sf.Type)):
			b.walk(sf.Type, path, nil)
		default:
			b.flag(path, pointed(sf.Type), doc, sf.Tag.Get("file") != "")
		}
	}
}

func pointed(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// flag adds the flag of one member that is no struct. With files, a value may be @FILE.
func (b *body) flag(path []string, t reflect.Type, doc string, files bool) {
	flag, f := strings.Join(path, "."), b.cmd.Flags()
	read := func(s string) (string, error) { return s, nil }
	if files {
		doc += "; @FILE reads it from a file"
		read = func(s string) (string, error) { return fromFile(s, b.cmd.InOrStdin()) }
	}
	b.fields = append(b.fields, field{path, flag, nil})
	get := &b.fields[len(b.fields)-1].get
	switch {
	case t.Kind() == reflect.String || isText(t):
		v := f.String(flag, "", doc)
		*get = func() (any, error) { return read(*v) }
	case t.Kind() == reflect.Bool:
		v := f.Bool(flag, false, doc)
		*get = func() (any, error) { return *v, nil }
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		v := f.Int64(flag, 0, doc)
		*get = func() (any, error) { return *v, nil }
	case t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.String || isText(t.Elem())):
		v := f.StringArray(flag, nil, doc+"; may be given several times")
		*get = func() (any, error) { return each(*v, read) }
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.String:
		v := f.StringToString(flag, nil, doc+"; key=value, may be given several times")
		*get = func() (any, error) { return *v, nil }
	default:
		v := f.String(flag, "", doc+"; as JSON")
		*get = func() (any, error) {
			if !json.Valid([]byte(*v)) {
				return nil, app.Invalid(flag, "is not JSON").Do("write JSON, in quotes for the shell, or put the request into a file: -f FILE")
			}
			return json.RawMessage(*v), nil
		}
	}
}

// each reads every value; a file of several lines gives one value for each line that is not empty.
func each(values []string, read func(string) (string, error)) ([]string, error) {
	out := []string{}
	for _, v := range values {
		s, err := read(v)
		if err != nil {
			return nil, err
		}
		if s == v {
			out = append(out, v)
			continue
		}
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				out = append(out, line)
			}
		}
	}
	return out, nil
}

// fromFile gives a value, or what the file holds that "@" comes before.
func fromFile(s string, stdin io.Reader) (string, error) {
	name, ok := strings.CutPrefix(s, "@")
	if !ok {
		return s, nil
	}
	if rest, home := strings.CutPrefix(name, "~/"); home { // no shell expands it behind "@"
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the home directory: %w", err)
		}
		name = filepath.Join(dir, rest)
	}
	raw, err := readAll(name, stdin)
	return string(raw), err
}

// isText reports whether a type travels as a JSON string.
func isText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()) || t.String() == "app.Duration"
}
