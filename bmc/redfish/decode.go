package redfish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// document is one resource as the BMC gave it.
type document struct {
	path string
	etag string // of the header, cleaned; "" when none
	body map[string]any
}

// parseDocument reads a JSON object.
func parseDocument(r *response) (*document, error) {
	dec := json.NewDecoder(bytes.NewReader(r.body))
	dec.UseNumber()
	d := &document{path: r.path, etag: cleanTag(r.header.Get("ETag"))}
	if err := dec.Decode(&d.body); err != nil || d.body == nil {
		return nil, driver.Errorf(driver.CodeBMCError, "the BMC's answer at %s is not a JSON object", clip(r.path, 80))
	}
	return d, nil
}

// get walks object members; nil when one is missing or no object.
func (d *document) get(keys ...string) any {
	if d == nil {
		return nil
	}
	var v any = d.body
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// text is a member as text: numbers and booleans in their JSON spelling, anything else "".
func (d *document) text(keys ...string) string { return textOf(d.get(keys...)) }

func textOf(v any) string {
	switch t := v.(type) {
	case string:
		return strings.TrimSpace(t)
	case json.Number:
		return t.String()
	case bool:
		return strconv.FormatBool(t)
	}
	return ""
}

// texts is a member as a list of texts; one value counts as a list of one. nil means the member is missing or null.
func (d *document) texts(keys ...string) []string {
	v := d.get(keys...)
	if v == nil {
		return nil
	}
	out := []string{}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		if s := textOf(e); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// object is a member that must be an object, wrapped; nil when it is not.
func (d *document) object(keys ...string) *document {
	m, ok := d.get(keys...).(map[string]any)
	if !ok {
		return nil
	}
	return &document{path: d.path, body: m}
}

// link is the "@odata.id" of a member: an object, or the first of a list of them.
func (d *document) link(keys ...string) string {
	links := d.links(keys...)
	if len(links) == 0 {
		return ""
	}
	return links[0]
}

// links are the "@odata.id"s of a member, which may be one object or a list, in order and each once.
func (d *document) links(keys ...string) []string {
	v := d.get(keys...)
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var out []string
	for _, e := range list {
		m, _ := e.(map[string]any)
		if s, _ := m["@odata.id"].(string); s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// cleanTag takes an ETag header as it can be sent back: an empty one is none, and a compression suffix is not part of it.
func cleanTag(s string) string {
	s = strings.TrimSpace(s)
	if s == `""` {
		return ""
	}
	return strings.Replace(s, `-gzip"`, `"`, 1)
}

// Bounds on one document before it counts as unreadable: wrong members repaired, and bytes decoded doing so.
const (
	maxRepairs     = 64
	maxRepairBytes = 8 << 20
)

// decode reads a document into a gofish type. A member of the wrong JSON type is converted when it means the same ("96"
// for 96, 12345 for "12345") and dropped when it does not ("N/A" for a number); each dropped member is named in the
// result once. The document itself is left alone.
func decode[T any](d *document) (T, []string) {
	var zero T
	if d == nil {
		return zero, nil
	}
	body, _ := copyJSON(d.body).(map[string]any)
	var dropped []string
	work := 0
	for range maxRepairs {
		b, err := json.Marshal(body)
		if work += len(b); err != nil || work > maxRepairBytes {
			break
		}
		var out T
		if err = json.Unmarshal(b, &out); err == nil {
			return out, dropped
		}
		field, changed, lost := repair(body, err)
		if !changed {
			break
		}
		if lost && !slices.Contains(dropped, field) {
			dropped = append(dropped, field)
		}
	}
	return zero, append(dropped, "everything")
}

// repair changes the member an unmarshalling error names. Errors that name none cost every nested member.
func repair(body map[string]any, err error) (field string, changed, lost bool) {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		return dropNested(body)
	}
	fix := fixer{want: wrong.Type, got: kindWord(wrong.Value)}
	fix.walk(body, strings.Split(wrong.Field, "."))
	if fix.changed {
		return wrong.Field, true, fix.lost
	}
	if part, _, _ := strings.Cut(wrong.Field, "."); part != "" {
		if k, ok := foldKey(body, part); ok {
			delete(body, k)
			return k, true, true
		}
	}
	return dropNested(body)
}

func dropNested(body map[string]any) (string, bool, bool) {
	var gone []string
	for k, v := range body {
		switch v.(type) {
		case map[string]any, []any:
			delete(body, k)
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	return strings.Join(gone, ", "), len(gone) > 0, true
}

// fixer converts or drops the values of one JSON kind at one path.
type fixer struct {
	want          reflect.Type
	got           string
	changed, lost bool
}

// walk descends by member names; names of embedded Go structs, which some Go versions put into the path, match nothing
// and are passed over. Lists are entered without a name.
func (f *fixer) walk(v any, path []string) {
	switch t := v.(type) {
	case []any:
		for i, e := range t {
			if len(path) == 0 && kindOf(e) == f.got {
				t[i] = f.convert(e)
				f.changed = true
				continue
			}
			f.walk(e, path)
		}
	case map[string]any:
		for ; len(path) > 0; path = path[1:] {
			for n := 1; n <= len(path); n++ { // member names such as "@odata.etag" hold the separator
				if k, ok := foldKey(t, strings.Join(path[:n], ".")); ok {
					f.member(t, k, path[n:])
					return
				}
			}
		}
	}
}

func (f *fixer) member(m map[string]any, key string, rest []string) {
	if len(rest) > 0 || kindOf(m[key]) != f.got {
		f.walk(m[key], rest)
		return
	}
	f.changed = true
	if v := f.convert(m[key]); v != nil {
		m[key] = v
		return
	}
	delete(m, key)
}

// convert gives the value in the wanted type, or nil and a loss.
func (f *fixer) convert(v any) any {
	want := f.want
	for want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	switch want.Kind() {
	case reflect.String:
		if s := textOf(v); s != "" {
			return s
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n, err := strconv.ParseFloat(textOf(v), 64); err == nil && fitsInteger(want, n) {
			return json.Number(strconv.FormatInt(int64(n), 10))
		}
	case reflect.Float32, reflect.Float64:
		if n, err := strconv.ParseFloat(textOf(v), 64); err == nil {
			return json.Number(strconv.FormatFloat(n, 'g', -1, 64))
		}
	case reflect.Bool:
		if b, err := strconv.ParseBool(strings.ToLower(textOf(v))); err == nil {
			return b
		}
	case reflect.Slice:
		if m, ok := v.(map[string]any); ok {
			return []any{m}
		}
	}
	f.lost = true
	return nil
}

// fitsInteger reports whether a number is whole and in the range of an integer type.
func fitsInteger(t reflect.Type, n float64) bool {
	if n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return false
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return !t.OverflowInt(int64(n))
	default:
		return n >= 0 && !t.OverflowUint(uint64(n))
	}
}

func kindWord(s string) string { word, _, _ := strings.Cut(s, " "); return word }

func kindOf(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case json.Number, float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

// foldKey finds a member as encoding/json does: exactly, else ignoring case.
func foldKey(m map[string]any, name string) (string, bool) {
	if _, ok := m[name]; ok {
		return name, true
	}
	for k := range m {
		if strings.EqualFold(k, name) {
			return k, true
		}
	}
	return "", false
}

func copyJSON(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, e := range t {
			out[k] = copyJSON(e)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, e := range t {
			out[i] = copyJSON(e)
		}
		return out
	}
	return v
}

// unreadable words the members that were dropped from a resource.
func unreadable(what string, dropped []string) []string {
	if len(dropped) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: the BMC's values cannot be read: %s", what, clip(strings.Join(dropped, ", "), 200))}
}
