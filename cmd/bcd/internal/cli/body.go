package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
)

// maxFile bounds a request read from a file, in bytes.
const maxFile = 1 << 20

// field is one flag of a body: where its value goes.
type field struct {
	path []string
	flag string
	get  func() (any, error)
}

// bodyFlags adds a flag for each field of a request, nested structs as --outer.inner, and -f for a whole request as YAML or
// JSON, which flags override. The function it returns gives the request, nil when the route has none.
func bodyFlags(cmd *cobra.Command, t reflect.Type) func(stdin io.Reader) (any, error) {
	if t == nil {
		return func(io.Reader) (any, error) { return nil, nil }
	}
	var fields []field
	walk(cmd, t, nil, &fields)
	file := cmd.Flags().StringP("file", "f", "", "read the request from a YAML or JSON file, - for standard input")
	return func(stdin io.Reader) (any, error) {
		body := map[string]any{}
		if *file != "" {
			v, err := readFile(*file, stdin)
			if err != nil {
				return nil, err
			}
			m, ok := v.(map[string]any)
			if !ok {
				return nil, app.Invalid("file", "%s does not hold one object", *file)
			}
			body = m
		}
		for _, f := range fields {
			if !cmd.Flags().Changed(f.flag) {
				continue
			}
			v, err := f.get()
			if err != nil {
				return nil, err
			}
			put(body, f.path, v)
		}
		return body, nil
	}
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

// walk adds the flags of a struct's fields.
func walk(cmd *cobra.Command, t reflect.Type, prefix []string, out *[]field) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" || name == "-" || len(prefix) > 2 {
			continue
		}
		path := append(append([]string{}, prefix...), name)
		flag := strings.Join(path, ".")
		ft := sf.Type
		for ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		f := cmd.Flags()
		add := func(get func() (any, error)) { *out = append(*out, field{path, flag, get}) }
		switch {
		case ft.Kind() == reflect.Struct && !isText(ft):
			walk(cmd, ft, path, out)
		case ft.Kind() == reflect.String || isText(ft):
			v := f.String(flag, "", "")
			add(func() (any, error) { return *v, nil })
		case ft.Kind() == reflect.Bool:
			v := f.Bool(flag, false, "")
			add(func() (any, error) { return *v, nil })
		case ft.Kind() >= reflect.Int && ft.Kind() <= reflect.Uint64:
			v := f.Int64(flag, 0, "")
			add(func() (any, error) { return *v, nil })
		case ft.Kind() == reflect.Slice && (ft.Elem().Kind() == reflect.String || isText(ft.Elem())):
			v := f.StringArray(flag, nil, "may be given several times")
			add(func() (any, error) { return *v, nil })
		case ft.Kind() == reflect.Map && ft.Elem().Kind() == reflect.String:
			v := f.StringToString(flag, nil, "key=value, may be given several times")
			add(func() (any, error) { return *v, nil })
		default:
			v := f.String(flag, "", "as JSON")
			add(func() (any, error) {
				if !json.Valid([]byte(*v)) {
					return nil, app.Invalid(flag, "is not JSON")
				}
				return json.RawMessage(*v), nil
			})
		}
	}
}

// isText reports whether a type travels as a JSON string.
func isText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()) || t.String() == "app.Duration"
}

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
