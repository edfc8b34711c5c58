package bcxtest

import (
	"encoding/json"
	"testing"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// mistakes calls what cannot be called so, past the host's own checks.
func (r *run) mistakes(t *testing.T) {
	if r.Conn == nil {
		t.Skip("the host keeps the connection to itself")
	}
	conn, err := r.Conn(within(t))
	if err != nil {
		t.Fatal(err)
	}
	good := r.Progress.Call
	good.Config = r.Config
	change := func(f func(*driver.Call)) driver.Call { c := good; f(&c); return c }
	for name, m := range map[string]struct {
		id   string
		call driver.Call
		code string
	}{
		"nobody's driver":            {"nobody", good, "driver-not-found"},
		"a kind it does not have":    {r.Plugin.Driver, change(func(c *driver.Call) { c.Kind = "constructor" }), driver.CodeUnsupported},
		"an operation of every type": {r.Plugin.Driver, change(func(c *driver.Call) { c.Operation = "toString" }), driver.CodeUnsupported},
		"arguments, no JSON":         {r.Plugin.Driver, change(func(c *driver.Call) { c.Args = json.RawMessage(`[`) }), driver.CodeInvalidArgs},
		"a configuration, no JSON":   {r.Plugin.Driver, change(func(c *driver.Call) { c.Config = json.RawMessage(`{`) }), driver.CodeInvalidConfig},
		"a wrong configuration":      {r.Plugin.Driver, change(func(c *driver.Call) { c.Config = r.Wrong }), driver.CodeInvalidConfig},
	} {
		c := r.context(within(t), nil)
		if _, err := conn.Invoke(c, bcx.Request{DriverID: m.id, Call: m.call}); code(err) != m.code {
			t.Errorf("%s: %v, want %s", name, err, m.code)
		}
		if s, err := conn.Stream(c, bcx.Request{DriverID: m.id, Call: m.call}); code(err) != m.code {
			t.Errorf("a stream of %s: %v, %v, want %s", name, s, err, m.code)
		}
	}
	if _, err := conn.Stream(r.context(within(t), nil), bcx.Request{DriverID: r.Plugin.Driver, Call: good}); code(err) != driver.CodeUnsupported {
		t.Errorf("a stream of %s, which has a result: %v", good.Name(), err)
	}
	if r.Stream.Kind == "" {
		return
	}
	stream := r.Stream
	stream.Config = r.Config
	if out, err := conn.Invoke(r.context(within(t), nil), bcx.Request{DriverID: r.Plugin.Driver, Call: stream}); code(err) != driver.CodeUnsupported {
		t.Errorf("the result of %s, which is a stream: %s, %v", stream.Name(), out, err)
	}
}
