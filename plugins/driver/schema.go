package driver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	maxSchema = 256 << 10 // bytes
	maxIssues = 32        // reported for one configuration
	schemaURL = "bcd:///config"
	draft     = "https://json-schema.org/draft/2020-12/schema"
)

// Issue is one thing wrong with a configuration: a JSON pointer to it ("" is the whole) and a sentence.
type Issue struct {
	Pointer string `json:"pointer"`
	Message string `json:"message"`
}

// String gives "/address: is missing".
func (i Issue) String() string {
	if i.Pointer == "" {
		return i.Message
	}
	return i.Pointer + ": " + i.Message
}

// configSchema is a compiled configuration schema.
type configSchema struct {
	raw      json.RawMessage
	doc      map[string]any
	compiled *jsonschema.Schema
	secrets  []string // top-level fields declared secret, sorted
}

// noLoader refuses every reference outside the schema: a definition must not reach for files or the network.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the reference %q leaves the schema", clip(url))
}

// compileSchema compiles a JSON Schema 2020-12 object. Empty bytes mean: no configuration.
func compileSchema(raw []byte) (*configSchema, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte(`{"type":"object","additionalProperties":false}`)
	}
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("the schema is %d bytes long, the limit is %d", len(raw), maxSchema)
	}
	doc, err := decodeJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("the schema is not a JSON object")
	}
	if s, given := object["$schema"]; given && s != draft && s != draft+"#" {
		return nil, fmt.Errorf("$schema must be %s", draft)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("the schema does not compile: %w", err)
	}
	return &configSchema{raw: bytes.Clone(raw), doc: object, compiled: compiled, secrets: secretFields(object)}, nil
}

func decodeJSON(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// secretFields lists top-level properties marked "x-bc": {"kind": "secret"}, "x-bc.kind": "secret" or "writeOnly": true, and
// such members of the top-level object options, which is where a BMC's driver options stand, as "options.NAME".
func secretFields(schema map[string]any) []string {
	props, _ := schema["properties"].(map[string]any)
	options, _ := props["options"].(map[string]any)
	members, _ := options["properties"].(map[string]any)
	names := markedSecret("", props)
	names = append(names, markedSecret("options.", members)...)
	slices.Sort(names)
	return names
}

func markedSecret(prefix string, props map[string]any) []string {
	var names []string
	for name, p := range props {
		prop, _ := p.(map[string]any)
		ext, _ := prop["x-bc"].(map[string]any)
		if ext["kind"] == "secret" || prop["x-bc.kind"] == "secret" || prop["writeOnly"] == true {
			names = append(names, prefix+name)
		}
	}
	return names
}

// validate lists what is wrong with a configuration, at most maxIssues things, in the order of their pointers.
func (s *configSchema) validate(config json.RawMessage) []Issue {
	if len(config) > maxJSON {
		return []Issue{{Message: fmt.Sprintf("the configuration is %d bytes long, the limit is %d", len(config), maxJSON)}}
	}
	if len(bytes.TrimSpace(config)) == 0 {
		config = json.RawMessage("{}")
	}
	v, err := decodeJSON(config)
	if err != nil {
		return []Issue{{Message: "the configuration is not JSON: " + clip(err.Error())}}
	}
	err = s.compiled.Validate(v)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil
	}
	var issues []Issue
	collect(invalid, &issues)
	slices.SortFunc(issues, func(a, b Issue) int {
		return cmp.Or(strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Message, b.Message))
	})
	issues = slices.Compact(issues)
	return issues[:min(len(issues), maxIssues)]
}

// collect gathers the leaves of a validation error.
func collect(e *jsonschema.ValidationError, into *[]Issue) {
	if len(e.Causes) == 0 {
		*into = append(*into, issueOf(e))
		return
	}
	for _, cause := range e.Causes {
		collect(cause, into)
	}
}

// issueOf words one failure for an operator, who knows fields and values, not schema keywords.
func issueOf(e *jsonschema.ValidationError) Issue {
	at := Issue{Pointer: pointer(e.InstanceLocation)}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		if len(k.Missing) == 1 {
			return Issue{Pointer: pointer(append(slices.Clone(e.InstanceLocation), k.Missing[0])), Message: "is missing"}
		}
		at.Message = "these are missing: " + sortedList(k.Missing)
	case *kind.AdditionalProperties:
		if len(k.Properties) == 1 {
			return Issue{Pointer: pointer(append(slices.Clone(e.InstanceLocation), k.Properties[0])), Message: "is not known to this driver"}
		}
		at.Message = "these are not known to this driver: " + sortedList(k.Properties)
	case *kind.Type:
		at.Message = fmt.Sprintf("must be %s, not %s", strings.Join(words(k.Want), " or "), words([]string{k.Got})[0])
	case *kind.Enum:
		at.Message = "must be one of " + values(k.Want)
	case *kind.Const:
		at.Message = "must be " + values([]any{k.Want})
	case *kind.Pattern:
		at.Message = "is not in the expected form (" + k.Want + ")"
	case *kind.DependentRequired:
		at.Message = fmt.Sprintf("with %s these are needed too: %s", clip(k.Prop), sortedList(k.Missing))
	case *kind.FalseSchema:
		at.Message = "must be left out"
	default:
		at.Message = bounds(e.ErrorKind)
	}
	return at
}

// bounds words what is too short, too long, too few, too many, too small or too large.
func bounds(k jsonschema.ErrorKind) string {
	count := func(how string, n int, one, many string) string {
		if n == 1 {
			return fmt.Sprintf("must have at %s 1 %s", how, one)
		}
		return fmt.Sprintf("must have at %s %d %s", how, n, many)
	}
	switch k := k.(type) {
	case *kind.MinLength:
		if k.Want == 1 {
			return "must not be empty"
		}
		return count("least", k.Want, "character", "characters")
	case *kind.MaxLength:
		return count("most", k.Want, "character", "characters")
	case *kind.MinItems:
		return count("least", k.Want, "entry", "entries")
	case *kind.MaxItems:
		return count("most", k.Want, "entry", "entries")
	case *kind.MinProperties:
		return count("least", k.Want, "field", "fields")
	case *kind.MaxProperties:
		return count("most", k.Want, "field", "fields")
	case *kind.UniqueItems:
		return fmt.Sprintf("has the same entry twice, at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	}
	return fmt.Sprintf("does not fit (%s)", strings.Join(k.KeywordPath(), "/"))
}

// number is a bound as people write it.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.RatString()
	}
	return strings.TrimRight(r.FloatString(9), "0")
}

// sortedList joins names for a message.
func sortedList(names []string) string {
	return clip(strings.Join(slices.Sorted(slices.Values(names)), ", "))
}

// words turns JSON Schema types into what people call them.
func words(types []string) []string {
	out := make([]string, len(types))
	for i, t := range types {
		switch t {
		case "string":
			out[i] = "text"
		case "integer":
			out[i] = "a whole number"
		case "number":
			out[i] = "a number"
		case "boolean":
			out[i] = "true or false"
		case "array":
			out[i] = "a list"
		case "object":
			out[i] = "an object"
		default:
			out[i] = t
		}
	}
	return out
}

func values(want []any) string {
	out := make([]string, len(want))
	for i, v := range want {
		b, _ := json.Marshal(v)
		out[i] = string(b)
	}
	return clip(strings.Join(out, ", "))
}

// pointer makes a JSON pointer (RFC 6901).
func pointer(path []string) string {
	esc := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(esc.Replace(p))
	}
	return b.String()
}

// withDefaults fills absent members that the schema gives a default, in objects nested by "properties".
func (s *configSchema) withDefaults(config json.RawMessage) (json.RawMessage, error) {
	if len(bytes.TrimSpace(config)) == 0 {
		config = json.RawMessage("{}")
	}
	v, err := decodeJSON(config)
	if err != nil {
		return nil, Errorf(CodeInvalidConfig, "the configuration is not JSON: %w", err)
	}
	return json.Marshal(fill(s.doc, v, 0))
}

func fill(schema map[string]any, v any, depth int) any {
	const deepest = 16
	object, ok := v.(map[string]any)
	props, has := schema["properties"].(map[string]any)
	if !ok || !has || depth > deepest {
		return v
	}
	for name, p := range props {
		prop, _ := p.(map[string]any)
		if _, given := object[name]; !given {
			if d, has := prop["default"]; has {
				object[name] = d
			}
		}
		if child, given := object[name]; given {
			object[name] = fill(prop, child, depth+1)
		}
	}
	return object
}

// plain words a JSON decoding error without Go type names.
func plain(err error) string {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		if t.Field != "" {
			return fmt.Sprintf("%s cannot be %s", t.Field, words([]string{t.Value})[0])
		}
		return fmt.Sprintf("it cannot be %s", words([]string{t.Value})[0])
	}
	return clip(strings.TrimPrefix(err.Error(), "json: "))
}
