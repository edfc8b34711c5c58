package driver_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/better-compute/bcd/plugins/driver"
)

// acme is a BMC at one address.
type acme struct {
	Address string `json:"address"`
	Timeout string `json:"timeout"`
}

func (a acme) GetPower(*driver.Context) (driver.PowerReading, error) {
	return driver.PowerReading{Power: driver.PowerOn}, nil
}

func (a acme) SetPower(ctx *driver.Context, action driver.PowerAction) error {
	ctx.Emit(driver.Progress{Phase: "power", Message: fmt.Sprintf("setting %s at %s within %s", action, a.Address, a.Timeout)})
	return nil
}

func Example() {
	d, err := driver.Define(driver.Definition{
		ID: "acme-bmc", Version: "1.0.0", RunsOn: driver.RunsOnSite,
		Config: []byte(`{"type": "object", "required": ["address"], "additionalProperties": false, "properties": {
			"address": {"type": "string"},
			"credentials": {"type": "string", "x-bc": {"kind": "secret"}},
			"timeout": {"type": "string", "default": "30s"}}}`),
		Implements: map[string]driver.Factory{
			"power": func(config json.RawMessage) (any, error) {
				var a acme
				err := json.Unmarshal(config, &a)
				return a, err
			},
		},
		RetrySafe: map[string][]string{"power": {"getPower"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.ValidateConfig(json.RawMessage(`{"adress": "192.0.2.10"}`)))

	ctx := driver.NewContext(context.Background())
	ctx.OnProgress = func(p driver.Progress) { fmt.Println(p.Message) }
	config := json.RawMessage(`{"address": "192.0.2.10"}`)
	out, err := d.Invoke(ctx, driver.Call{Kind: "power", Operation: "setPower", Config: config, Args: json.RawMessage(`["on"]`)})
	fmt.Println(string(out), err)
	out, err = d.Invoke(ctx, driver.Call{Kind: "power", Operation: "getPower", Config: config})
	fmt.Println(string(out), err)
	// Output:
	// [/address: is missing /adress: is not known to this driver]
	// setting on at 192.0.2.10 within 30s
	// {} <nil>
	// {"power":"on"} <nil>
}
