package driver

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// maxJSON bounds the arguments, configuration and result of one call, in bytes.
const maxJSON = 4 << 20

// Positional reads arguments in any accepted form into the positional array: an array as it is, nothing and null as no
// arguments, an object whose keys are all parameter names (or members of the last parameter, see Operation.Spread) by
// name, and any other value as the single argument.
func (o Operation) Positional(raw json.RawMessage) ([]json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > maxJSON {
		return nil, Errorf(CodeInvalidArgs, "the arguments are %d bytes long, the limit is %d", len(raw), maxJSON)
	}
	switch {
	case len(raw) == 0 || bytes.Equal(raw, []byte("null")):
		return nil, nil
	case raw[0] == '[':
		return o.array(raw)
	case raw[0] == '{':
		return o.named(raw)
	case !json.Valid(raw):
		return nil, Errorf(CodeInvalidArgs, "the arguments are not JSON")
	}
	return o.bounded([]json.RawMessage{raw})
}

func (o Operation) array(raw json.RawMessage) ([]json.RawMessage, error) {
	var args []json.RawMessage
	if err := json.Unmarshal(raw, &args); err != nil {
		return nil, Errorf(CodeInvalidArgs, "the arguments are not a JSON array: %w", err)
	}
	for len(args) > 0 && string(args[len(args)-1]) == "null" {
		args = args[:len(args)-1]
	}
	return o.bounded(args)
}

// bounded refuses more arguments than parameters. Operations of kinds without declared parameters take any number.
func (o Operation) bounded(args []json.RawMessage) ([]json.RawMessage, error) {
	if o.call != nil && len(args) > len(o.Params) {
		return nil, Errorf(CodeInvalidArgs, "%s takes at most %d arguments, not %d", o.Name, len(o.Params), len(args))
	}
	return args, nil
}

func (o Operation) named(raw json.RawMessage) ([]json.RawMessage, error) {
	var with map[string]json.RawMessage
	if err := json.Unmarshal(raw, &with); err != nil {
		return nil, Errorf(CodeInvalidArgs, "the arguments are not a JSON object: %w", err)
	}
	if len(o.Params) == 0 {
		if o.call != nil && len(with) > 0 {
			return nil, Errorf(CodeInvalidArgs, "%s takes no arguments", o.Name)
		}
		if o.call != nil {
			return nil, nil
		}
		return []json.RawMessage{raw}, nil
	}
	args := make([]json.RawMessage, len(o.Params))
	members := map[string]json.RawMessage{}
	var unknown []string
	for name, value := range with {
		switch i := slices.Index(o.Params, name); {
		case i >= 0:
			args[i] = value
		case slices.Contains(o.Spread, name):
			members[name] = value
		default:
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return o.single(raw, unknown)
	}
	if err := o.merge(args, members); err != nil {
		return nil, err
	}
	for len(args) > 0 && args[len(args)-1] == nil {
		args = args[:len(args)-1]
	}
	return args, nil
}

// single takes an object with unknown names as the one argument of a one-parameter operation; with more parameters the
// names are mistakes.
func (o Operation) single(raw json.RawMessage, unknown []string) ([]json.RawMessage, error) {
	if len(o.Params) == 1 && len(o.Spread) == 0 {
		return []json.RawMessage{raw}, nil
	}
	slices.Sort(unknown)
	known := append(slices.Clone(o.Params), o.Spread...)
	return nil, Errorf(CodeInvalidArgs, "%s has no argument %s; it takes %s", o.Name,
		clip(strings.Join(unknown, ", ")), strings.Join(known, ", "))
}

// merge puts spread members into the last parameter, beside what was given there by its own name.
func (o Operation) merge(args []json.RawMessage, members map[string]json.RawMessage) error {
	if len(members) == 0 {
		return nil
	}
	last := len(args) - 1
	whole := map[string]json.RawMessage{}
	if args[last] != nil {
		if err := json.Unmarshal(args[last], &whole); err != nil {
			return Errorf(CodeInvalidArgs, "the argument %s of %s must be an object", o.Params[last], o.Name)
		}
	}
	for name, value := range members {
		whole[name] = value
	}
	b, err := json.Marshal(whole)
	if err != nil {
		return Errorf(CodeInvalidArgs, "the arguments of %s are not JSON: %w", o.Name, err)
	}
	args[last] = b
	return nil
}

// argument decodes one positional argument. A missing one is the zero value; the operation judges whether it needs it.
func argument[A any](name string, args []json.RawMessage, i int) (A, error) {
	var a A
	if i >= len(args) || len(args[i]) == 0 || string(args[i]) == "null" {
		return a, nil
	}
	dec := json.NewDecoder(bytes.NewReader(args[i]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return a, Errorf(CodeInvalidArgs, "the argument %s is wrong: %s", name, plain(err))
	}
	return a, nil
}

// clip bounds text that came from outside before it is put into a message.
func clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
