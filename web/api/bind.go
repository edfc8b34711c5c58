package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/problem"
)

// MaxJSON bounds a JSON request body, in bytes.
const MaxJSON = 1 << 20

// decode reads exactly one JSON document of known fields into v. The query never takes part.
func decode(r *http.Request, v any) error {
	switch reflect.TypeOf(v).Elem() {
	case reflect.TypeFor[none]():
		return noBody(r)
	case reflect.TypeFor[rawInput]():
		return nil
	}
	if r.ContentLength == 0 && optional(v) {
		return nil
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return app.Errorf(app.InvalidInput, problem.ReasonMediaType, "the body is not declared as JSON").
			Do("send \"Content-Type: application/json\"")
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return readError(err)
	}
	return problem.Decode(raw, v)
}

func noBody(r *http.Request) error {
	var b [512]byte
	n, err := io.ReadFull(r.Body, b[:])
	switch s := strings.TrimSpace(string(b[:n])); {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return readError(err)
	case s == "" || s == "{}":
		return nil
	}
	return problem.Malformed("this request takes no body").Do("send it without one")
}

func readError(err error) error {
	var big *http.MaxBytesError
	if errors.As(err, &big) {
		return err
	}
	return problem.Malformed("the body ended early or came too slowly").Retryable()
}

// optional reports whether every member of v may be left out.
func optional(v any) bool {
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		if !strings.Contains(t.Field(i).Tag.Get("json"), ",omitempty") {
			return false
		}
	}
	return true
}

// checkQuery refuses query parameters that a read does not know, and repeated ones. Writes never look at the query.
func checkQuery(r *http.Request, rt *Route) error {
	if r.Method != http.MethodGet {
		return nil
	}
	for name, values := range r.URL.Query() {
		known := false
		for _, p := range rt.Query {
			known = known || p.Name == name
		}
		if !known || len(values) != 1 {
			return problem.Malformed("is not a parameter of this request, or given twice").At(name).Do("see /api/v1/openapi.json")
		}
	}
	return nil
}

// limit reads the page size: 1 to 1000, the default when absent.
func (c *Call) limit(standard int) (int, error) {
	s := c.Query.Get("limit")
	if s == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1000 {
		return 0, app.Invalid("limit", "is not a number from 1 to 1000")
	}
	return n, nil
}

// flag reads a true/false parameter.
func (c *Call) flag(name string) (bool, error) {
	switch c.Query.Get(name) {
	case "":
		return false, nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, app.Invalid(name, "is neither true nor false")
}

// mac reads a path parameter as a MAC address in any spelling.
func (c *Call) mac() (app.MAC, error) { return app.ParseMAC(c.Path["mac"]) }

func (c *Call) actor() string { return c.Who.Actor() }
