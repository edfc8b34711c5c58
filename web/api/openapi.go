package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/web/problem"
)

type object = map[string]any

// OpenAPI writes the OpenAPI 3.1 document of a table, from its Go types.
func OpenAPI(routes []Route, version string) ([]byte, error) {
	s := &schemas{defs: object{}}
	paths := object{}
	for i := range routes {
		rt := &routes[i]
		item, _ := paths[rt.Path].(object)
		if item == nil {
			item = object{}
			paths[rt.Path] = item
		}
		item[strings.ToLower(rt.Method)] = s.operation(rt)
	}
	problemRef := s.of(reflect.TypeFor[problem.Body]())
	doc := object{
		"openapi": "3.1.0",
		"info":    object{"title": "bcd", "version": orElse(version, "dev"), "description": "Bare-metal provisioning of one site."},
		"paths":   paths,
		"components": object{
			"schemas": s.defs,
			"responses": object{"Problem": object{"description": "An error: a code, a sentence, and the way out.",
				"content": jsonContent(problemRef)}},
			"securitySchemes": object{
				"session": object{"type": "apiKey", "in": "cookie", "name": CookieName},
				"token":   object{"type": "http", "scheme": "bearer"},
			},
		},
	}
	return json.MarshalIndent(doc, "", " ")
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func jsonContent(schema object) object { return object{"application/json": object{"schema": schema}} }

var paramRE = regexp.MustCompile(`\{([a-z]+)\}`)

func (s *schemas) operation(rt *Route) object {
	op := object{"operationId": rt.ID, "summary": rt.Summary, "tags": []string{strings.SplitN(rt.ID, ".", 2)[0]},
		"x-bcd-permission": rt.Permission, "security": []object{{"session": []string{}}, {"token": []string{}}}}
	if rt.Permission == Public {
		op["security"] = []object{}
	}
	params := []object{}
	for _, m := range paramRE.FindAllStringSubmatch(rt.Path, -1) {
		params = append(params, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for in, list := range map[string][]Param{"query": rt.Query, "header": rt.Headers} {
		for _, p := range list {
			params = append(params, object{"name": p.Name, "in": in, "description": p.Help, "schema": object{"type": p.Type}})
		}
	}
	if len(params) > 0 {
		op["parameters"] = params
	}
	switch {
	case rt.Request != nil:
		op["requestBody"] = object{"required": !optional(reflect.New(rt.Request).Interface()), "content": jsonContent(s.of(rt.Request))}
	case rt.Raw && rt.Method != http.MethodGet:
		op["requestBody"] = object{"required": true, "content": object{"application/octet-stream": object{}}}
	}
	ok := object{"description": http.StatusText(rt.Status)}
	switch {
	case rt.Response != nil:
		ok["content"] = jsonContent(s.of(rt.Response))
	case rt.ID == "events.stream":
		ok["content"] = object{"text/event-stream": object{"schema": object{"type": "string"}}}
	case rt.Duplex:
		ok["content"] = object{"application/octet-stream": object{}}
	case rt.Raw:
		ok["content"] = jsonContent(object{"type": "object"})
	}
	op["responses"] = object{strconv.Itoa(rt.Status): ok, "default": object{"$ref": "#/components/responses/Problem"}}
	return op
}

// schemas collects the JSON Schemas of Go types as encoding/json writes them.
type schemas struct {
	defs object
}

var special = map[reflect.Type]object{
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[app.Duration]():    {"type": "string", "examples": []string{"1h30m"}},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[netip.Addr]():      {"type": "string"},
	reflect.TypeFor[netip.Prefix]():    {"type": "string", "examples": []string{"192.0.2.0/24"}},
	reflect.TypeFor[app.MAC]():         {"type": "string", "examples": []string{"00:00:5e:00:53:01"}},
	reflect.TypeFor[app.StaticRoute](): {"type": "string", "examples": []string{"198.51.100.0/24=192.0.2.254"}},
	reflect.TypeFor[app.DHCPOption]():  {"type": "string", "examples": []string{"26=uint16:9000"}},
	reflect.TypeFor[secret.Value](): {"oneOf": []object{{"type": "string"}, {"type": "object", "additionalProperties": object{"type": "string"}}},
		"writeOnly": true},
}

// of gives the schema of a type: inline for plain ones, a reference for structs.
func (s *schemas) of(t reflect.Type) object {
	if o, ok := special[t]; ok {
		return o
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint32, reflect.Uint8:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.ref(t)
	}
	panic(fmt.Sprintf("no schema for %s", t)) // a test generates the document
}

func (s *schemas) ref(t reflect.Type) object {
	name := schemaName(t)
	if _, ok := s.defs[name]; !ok {
		s.defs[name] = nil // so that a type may hold itself
		props, required := object{}, []string{}
		s.fields(t, props, &required)
		o := object{"type": "object", "properties": props, "additionalProperties": false}
		if len(required) > 0 {
			o["required"] = required
		}
		s.defs[name] = o
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func (s *schemas) fields(t reflect.Type, props object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			s.fields(f.Type, props, required)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		props[orElse(name, f.Name)] = described(s.nullable(f.Type, opts), f.Tag)
		if !strings.Contains(opts, "omitempty") && !strings.Contains(opts, "omitzero") {
			*required = append(*required, orElse(name, f.Name))
		}
	}
}

// described adds what a member's doc tag says, and that a secret one is never read back.
func described(schema object, tag reflect.StructTag) object {
	doc, secret := tag.Get("doc"), tag.Get("secret") != ""
	if doc == "" && !secret {
		return schema
	}
	out := maps.Clone(schema) // the schemas of special are shared
	if doc != "" {
		out["description"] = doc
	}
	if secret {
		out["writeOnly"] = true
	}
	return out
}

// nullable adds null for what encoding/json writes as null: nil slices and maps that are not left out.
func (s *schemas) nullable(t reflect.Type, opts string) object {
	o := s.of(t)
	if k := t.Kind(); (k == reflect.Slice || k == reflect.Map) && !strings.Contains(opts, "omit") && o["type"] != nil {
		return object{"anyOf": []object{o, {"type": "null"}}}
	}
	return o
}

var genericRE = regexp.MustCompile(`^([A-Za-z]+)\[(?:.*[./])?([A-Za-z]+)\]$`)

// schemaName gives Machine for app.Machine, ListMachine for List[app.Machine].
func schemaName(t reflect.Type) string {
	if m := genericRE.FindStringSubmatch(t.Name()); m != nil {
		return m[1] + m[2]
	}
	return t.Name()
}
