package problem

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Decode decodes exactly one JSON object of known fields.
func Decode(raw []byte, v any) error {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return Malformed("the body is not a JSON object").Do("send one JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return decodeError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Malformed("the body holds more than one JSON document").Do("send one JSON object")
	}
	return nil
}

func decodeError(err error) error {
	var typ *json.UnmarshalTypeError
	if e, ok := app.AsError(err); ok {
		return e
	}
	if errors.As(err, &typ) {
		return Malformed("is a %s where a %s belongs", typ.Value, typ.Type.Kind()).At(typ.Field)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if s, err := strconv.Unquote(name); err == nil {
			name = s
		}
		return Malformed("is not a field of this request").At(name).Do("see /api/v1/openapi.json")
	}
	return Malformed("the body is not valid JSON").Do("send one JSON object")
}
