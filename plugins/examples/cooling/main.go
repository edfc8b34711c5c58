// Command cooling is an example of a driver plugin: it serves a cooling unit of Acme, simulated in memory, so that it can
// be tried without one. README.md beside it explains it line by line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

func main() {
	bcx.Main(bcx.Options{PluginVersion: "1.0.0", Health: health}, Definition())
}

// schema is the configuration of one unit. Its password is a secret: the configuration holds a reference to it.
const schema = `{
  "type": "object",
  "required": ["address"],
  "additionalProperties": false,
  "properties": {
    "address":     {"type": "string", "minLength": 1, "description": "host name or address of the unit"},
    "credentials": {"type": "string", "x-bc": {"kind": "secret"}, "description": "reference to the unit's password"},
    "fans":        {"type": "integer", "minimum": 1, "maximum": 12, "default": 4}
  }
}`

// Definition declares the driver: what one would register in process, too.
func Definition() driver.Definition {
	units := newRack()
	open := func(raw json.RawMessage) (*unit, error) {
		var c config
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, err
		}
		return units.at(c), nil
	}
	return driver.Definition{
		ID: "acme-cooling", Version: "1.0.0", RunsOn: driver.RunsOnSite, Config: []byte(schema),
		Implements: map[string]driver.Factory{
			"acme-cooling": func(raw json.RawMessage) (any, error) { return opened[cooling](open(raw)) },
			"power":        func(raw json.RawMessage) (any, error) { return opened[power](open(raw)) },
			"console":      func(raw json.RawMessage) (any, error) { return opened[console](open(raw)) },
		},
		RetrySafe: map[string][]string{"acme-cooling": {"getFanCurve", "getTemperature"}, "power": {"getPower"}},
		Validate:  validate,
	}
}

// opened makes an implementation of a unit.
func opened[K ~struct{ *unit }](u *unit, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return K{u}, nil
}

// validate logs in once when the configuration names credentials.
func validate(ctx *driver.Context, raw json.RawMessage) error {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	if c.Credentials == "" {
		return nil
	}
	return (&unit{config: c}).login(ctx)
}

// health shows how a plugin says that it cannot work.
func health(context.Context) error {
	if why := os.Getenv("ACME_COOLING_SICK"); why != "" {
		return errors.New(why)
	}
	return nil
}
