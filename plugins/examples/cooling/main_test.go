package main

import (
	"encoding/json"
	"testing"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// TestDefinition is the first test of an author: the definition as a real plugin.
func TestDefinition(t *testing.T) {
	d := bcx.Harness(t, Definition())
	call := driver.Call{Kind: "acme-cooling", Operation: "getFanCurve", Config: json.RawMessage(`{"address":"192.0.2.10"}`)}
	out, err := d.Invoke(driver.NewContext(t.Context()), call)
	if err != nil || string(out) != "[20,40,80]" {
		t.Errorf("%s, %v", out, err)
	}
}
