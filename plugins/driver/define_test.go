package driver

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func nothing(json.RawMessage) (any, error) { return nil, nil }

// valid is a definition without mistakes.
func valid() Definition {
	return Definition{
		ID: "acme-bmc", Version: "1.0.0", RunsOn: RunsOnSite,
		Config: []byte(`{"type":"object","required":["address"],"additionalProperties":false,"properties":{
			"address":{"type":"string","minLength":1},
			"timeout":{"type":"string","default":"30s"},
			"credentials":{"type":"string","x-bc":{"kind":"secret"}},
			"token":{"type":"string","x-bc.kind":"secret"},
			"pass":{"type":"string","writeOnly":true},
			"options":{"type":"object","properties":{"suite":{"type":"integer","minimum":3,"maximum":17,"default":17},"mode":{"enum":["a","b"]}}}}}`),
		Capabilities: []string{"virtual-media", "bcx.stream:console.open"},
		Implements:   map[string]Factory{"power": nothing, "virtual-media": nothing},
		RetrySafe:    map[string][]string{"power": {"getPower"}, "virtual-media": {"insert", "eject"}},
	}
}

func TestDefineNamesTheField(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Definition)
		field  string
	}{
		"id with a dot":        {func(d *Definition) { d.ID = "acme.bmc" }, "ID"},
		"id in capitals":       {func(d *Definition) { d.ID = "Acme" }, "ID"},
		"id too long":          {func(d *Definition) { d.ID = strings.Repeat("a", 64) }, "ID"},
		"no version":           {func(d *Definition) { d.Version = "" }, "Version"},
		"version with v":       {func(d *Definition) { d.Version = "v1.0.0" }, "Version"},
		"two numbers":          {func(d *Definition) { d.Version = "1.0" }, "Version"},
		"runs nowhere":         {func(d *Definition) { d.RunsOn = "moon" }, "RunsOn"},
		"no kind":              {func(d *Definition) { d.Implements, d.RetrySafe = nil, nil }, "Implements"},
		"unknown kind":         {func(d *Definition) { d.Implements["acme-heating"] = nothing }, "Implements[acme-heating]"},
		"bad kind":             {func(d *Definition) { d.Implements["Power!"] = nothing }, "Implements[Power!]"},
		"no factory":           {func(d *Definition) { d.Implements["bios"] = nil }, "Implements[bios]"},
		"retry-safe kind":      {func(d *Definition) { d.RetrySafe["bios"] = []string{"getSettings"} }, "RetrySafe[bios]"},
		"retry-safe operation": {func(d *Definition) { d.RetrySafe["power"] = []string{"explode"} }, "RetrySafe[power]"},
		"operation":            {func(d *Definition) { d.Operations = map[string][]string{"power": {"explode"}} }, "Operations[power]"},
		"capability":           {func(d *Definition) { d.Capabilities = []string{"a b"} }, "Capabilities"},
		"schema no JSON":       {func(d *Definition) { d.Config = []byte(`{`) }, "Config"},
		"schema a list":        {func(d *Definition) { d.Config = []byte(`[]`) }, "Config"},
		"schema wrong":         {func(d *Definition) { d.Config = []byte(`{"type":"strnig"}`) }, "Config"},
		"schema of old":        {func(d *Definition) { d.Config = []byte(`{"$schema":"http://json-schema.org/draft-04/schema#"}`) }, "Config"},
		"schema by file":       {func(d *Definition) { d.Config = []byte(`{"$ref":"file:///etc/passwd"}`) }, "Config"},
		"schema by network":    {func(d *Definition) { d.Config = []byte(`{"$ref":"https://schemas.example/x"}`) }, "Config"},
		"schema too long":      {func(d *Definition) { d.Config = []byte(`{"title":"` + strings.Repeat("x", maxSchema) + `"}`) }, "Config"},
		"schema bad pattern":   {func(d *Definition) { d.Config = []byte(`{"properties":{"a":{"pattern":"("}}}`) }, "Config"},
	} {
		t.Run(name, func(t *testing.T) {
			def := valid()
			c.change(&def)
			_, err := Define(def)
			var f *FieldError
			if !errors.As(err, &f) || f.Field != c.field {
				t.Fatalf("got %v, want a mistake in %s", err, c.field)
			}
		})
	}
}

func TestDefineReportsAllMistakes(t *testing.T) {
	_, err := Define(Definition{ID: "X", Version: "1", RunsOn: "y"})
	for _, field := range []string{"ID", "Version", "RunsOn", "Implements"} {
		if !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestDriverNeverChanges(t *testing.T) {
	def := valid()
	d, err := Define(def)
	if err != nil {
		t.Fatal(err)
	}
	def.Implements["bios"] = nothing
	def.RetrySafe["power"][0] = "setPower"
	def.Capabilities[0] = "x"
	def.Config[0] = 'x'
	d.Capabilities()[0] = "y"
	d.RetrySafe()["power"][0] = "z"
	d.Schema()[0] = 'z'
	if !slices.Equal(d.Kinds(), []string{"power", "virtual-media"}) || !d.IsRetrySafe("power", "getPower") || d.IsRetrySafe("power", "setPower") ||
		!slices.Equal(d.Capabilities(), []string{"bcx.stream:console.open", "virtual-media"}) || d.Schema()[0] != '{' {
		t.Errorf("the driver changed: %v %v %v %s", d.Kinds(), d.RetrySafe(), d.Capabilities(), d.Schema())
	}
	if got := d.RetrySafe()["virtual-media"]; !slices.Equal(got, []string{"eject", "insert"}) {
		t.Errorf("operations are not sorted: %v", got)
	}
}

func TestForeignDriverMayHaveUnknownKinds(t *testing.T) {
	def := valid()
	def.Foreign = true
	def.Implements["acme-heating"] = nothing
	def.RetrySafe["acme-heating"] = []string{"read"}
	if _, err := Define(def); err != nil {
		t.Fatal(err)
	}
}

func TestConfigIssues(t *testing.T) {
	d, err := Define(valid())
	if err != nil {
		t.Fatal(err)
	}
	if got := d.SecretFields(); !slices.Equal(got, []string{"credentials", "pass", "token"}) {
		t.Errorf("secret fields %v", got)
	}
	for config, want := range map[string]string{
		`{"address":"192.0.2.1"}`:                "",
		``:                                       "/address: is missing",
		`{}`:                                     "/address: is missing",
		`[]`:                                     "must be an object, not a list",
		`{"address":7}`:                          "/address: must be text, not a number",
		`{"address":""}`:                         "/address: must not be empty",
		`{"address":"x","adress":"y"}`:           "/adress: is not known to this driver",
		`{"address":"x","options":{"suite":0}}`:  "/options/suite: must be at least 3",
		`{"address":"x","options":{"suite":99}}`: "/options/suite: must be at most 17",
		`{"address":"x","options":{"mode":"c"}}`: `/options/mode: must be one of "a", "b"`,
		`{"address":"x","options":{"suite":"17","mode":7}}`: "/options/mode: must be one of",
		`{"address":"x"} {}`:          "the configuration is not JSON",
		`{`:                           "the configuration is not JSON",
		`{"address":"x","a/b":1}`:     "/a~1b: is not known to this driver",
		`{"address":"x","p":1,"q":2}`: "these are not known to this driver: p, q",
		`{"address":"` + strings.Repeat("x", maxJSON+1) + `"}`: "the limit is",
	} {
		issues := d.ValidateConfig(json.RawMessage(config))
		if want == "" && len(issues) > 0 || want != "" && (len(issues) == 0 || !strings.HasPrefix(issues[0].String(), want) && !strings.Contains(issues[0].String(), "limit is")) {
			t.Errorf("%.60s: %v, want %q", config, issues, want)
		}
	}
}

// What a schema may demand is told in the operator's words, not in the schema's.
func TestEveryMistakeIsWorded(t *testing.T) {
	d, err := Define(Definition{ID: "x", Version: "1.0.0", RunsOn: RunsOnSite, Implements: map[string]Factory{"power": nothing}, Config: []byte(`{
		"dependentRequired":{"user":["pass","realm"]},"maxProperties":3,
		"properties":{"s":{"minLength":3,"maxLength":5},"one":{"maxLength":1},"l":{"minItems":1,"maxItems":2,"uniqueItems":true},"o":{"type":"object","minProperties":1},
			"n":{"minimum":2.5,"maximum":10},"x":{"exclusiveMinimum":0,"exclusiveMaximum":1},"m":{"multipleOf":0.25},"p":{"pattern":"^[a-z]+$"},"c":{"const":"on"},
			"e":{"enum":[1,"b",null]},"t":{"type":["string","integer"]},"old":false}}`)})
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		`{"s":"ab"}`:                            "/s: must have at least 3 characters",
		`{"s":"abcdef"}`:                        "/s: must have at most 5 characters",
		`{"one":"ab"}`:                          "/one: must have at most 1 character",
		`{"l":[]}`:                              "/l: must have at least 1 entry",
		`{"l":[1,2,3]}`:                         "/l: must have at most 2 entries",
		`{"l":["a","a"]}`:                       "/l: has the same entry twice, at 0 and 1",
		`{"o":{}}`:                              "/o: must have at least 1 field",
		`{"n":2}`:                               "/n: must be at least 2.5",
		`{"n":11}`:                              "/n: must be at most 10",
		`{"x":0}`:                               "/x: must be more than 0",
		`{"x":1}`:                               "/x: must be less than 1",
		`{"m":0.3}`:                             "/m: must be a multiple of 0.25",
		`{"p":"A"}`:                             "/p: is not in the expected form (^[a-z]+$)",
		`{"c":"off"}`:                           `/c: must be "on"`,
		`{"e":2}`:                               `/e: must be one of 1, "b", null`,
		`{"t":[]}`:                              "/t: must be a whole number or text, not a list",
		`{"old":1}`:                             "/old: must be left out",
		`{"user":"u"}`:                          "with user these are needed too: pass, realm",
		`{"s":"abc","p":"a","c":"on","one":""}`: "must have at most 3 fields",
	} {
		if issues := d.ValidateConfig(json.RawMessage(config)); len(issues) != 1 || issues[0].String() != want {
			t.Errorf("%s: %v, want %q", config, issues, want)
		}
	}
}

func TestSecretFieldsOfOptions(t *testing.T) {
	d, err := Define(Definition{ID: "x", Version: "1.0.0", RunsOn: RunsOnSite,
		Config:     []byte(`{"properties":{"token":{"writeOnly":true},"options":{"properties":{"kg":{"x-bc":{"kind":"secret"}},"suite":{},"deep":{"properties":{"no":{"writeOnly":true}}}}}}}`),
		Implements: map[string]Factory{"power": func(json.RawMessage) (any, error) { return nil, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.SecretFields(); !slices.Equal(got, []string{"options.kg", "token"}) {
		t.Errorf("secret fields %q", got)
	}
}
