package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// config is what the schema describes, with its defaults.
type config struct {
	Address     string `json:"address"`
	Credentials string `json:"credentials"`
	Fans        int    `json:"fans"`
}

// unit is a simulated cooling unit.
type unit struct {
	config

	mu    *sync.Mutex
	state *state
}

type state struct {
	curve []float64 // fan speed in percent at 20, 30, ... °C
	power string
}

// rack holds the units by address, for as long as the plugin runs.
type rack struct {
	mu    sync.Mutex
	units map[string]*state
}

func newRack() *rack { return &rack{units: map[string]*state{}} }

func (r *rack) at(c config) *unit {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.units[c.Address]
	if s == nil {
		s = &state{curve: []float64{20, 40, 80}, power: driver.PowerOn}
		r.units[c.Address] = s
	}
	return &unit{config: c, mu: &r.mu, state: s}
}

// login checks the password as the unit would.
func (u *unit) login(ctx *driver.Context) error {
	password, err := ctx.Secret(u.Credentials)
	if err != nil {
		return err
	}
	if password != "cool" {
		return driver.Errorf(driver.CodeAuthFailed, "the unit at %s refuses the password", u.Address)
	}
	return nil
}

// cooling is the kind acme-cooling. Nobody registered it: its operations come by name.
type cooling struct{ *unit }

// Invoke serves
//
//	getFanCurve()           -> [percent, ...]
//	setFanCurve(curve)      -> {"points": n}    with progress for each point
//	getTemperature(sensor)  -> {"celsius": n}   sensor 0 to 3; sensor 9 is busy
//	getSerial()             -> {"serial": text} after logging in
//	selfTest({seconds})     -> {}               runs the fans up and down
func (c cooling) Invoke(ctx *driver.Context, operation string, args []json.RawMessage) (any, error) {
	switch operation {
	case "getFanCurve":
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.state.curve, nil
	case "setFanCurve":
		return c.setFanCurve(ctx, args)
	case "getTemperature":
		return c.temperature(args)
	case "getSerial":
		if err := c.login(ctx); err != nil {
			return nil, err
		}
		return map[string]string{"serial": "AC-" + c.Address}, nil
	case "selfTest":
		return nil, c.selfTest(ctx, args)
	}
	return nil, driver.Errorf(driver.CodeUnsupported, "a cooling unit has no operation %s", operation)
}

func (c cooling) setFanCurve(ctx *driver.Context, args []json.RawMessage) (any, error) {
	var curve []float64
	if err := argument(args, &curve); err != nil {
		return nil, err
	}
	for i, percent := range curve {
		if percent < 0 || percent > 100 {
			return nil, driver.Errorf("fan-curve-invalid", "point %d of the curve is %g percent; it must be 0 to 100", i+1, percent)
		}
		ctx.Emit(driver.Progress{Phase: "points", Message: fmt.Sprintf("%g percent", percent), Done: int64(i + 1), Total: int64(len(curve))})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.curve = curve
	ctx.Log().Info("fan curve set", "points", len(curve), "attempt", ctx.IdempotencyKey, "traceparent", ctx.TraceParent)
	return map[string]int{"points": len(curve)}, nil
}

func (c cooling) temperature(args []json.RawMessage) (any, error) {
	var sensor int
	if err := argument(args, &sensor); err != nil {
		return nil, err
	}
	switch {
	case sensor == 9:
		return nil, driver.Errorf(driver.CodeBusy, "sensor 9 is being calibrated; ask again in a minute").Again()
	case sensor < 0 || sensor > 3:
		return nil, driver.Errorf(driver.CodeInvalidArgs, "there is no sensor %d; the unit has 0 to 3", sensor)
	}
	return map[string]float64{"celsius": 21.5 + float64(sensor)}, nil
}

// selfTest reports progress ten times a second and ends early when its context does.
func (c cooling) selfTest(ctx *driver.Context, args []json.RawMessage) error {
	options := struct {
		Seconds int64 `json:"seconds"`
	}{Seconds: 10}
	if err := argument(args, &options); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	steps := options.Seconds * 10
	for i := range steps {
		ctx.Emit(driver.Progress{Phase: "self-test", Message: fmt.Sprintf("%d fans", c.Fans), Done: i + 1, Total: steps})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// argument reads the one argument of an operation.
func argument(args []json.RawMessage, into any) error {
	if len(args) == 0 {
		return nil
	}
	if err := json.Unmarshal(args[0], into); err != nil {
		return driver.Errorf(driver.CodeInvalidArgs, "the argument has the wrong form: %w", err)
	}
	return nil
}

// power is the kind power.
type power struct{ *unit }

// GetPower says whether the unit is on.
func (p power) GetPower(*driver.Context) (driver.PowerReading, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return driver.PowerReading{Power: p.state.power}, nil
}

// SetPower turns it on or off; it has no operating system to ask softly, and nothing to reset.
func (p power) SetPower(_ *driver.Context, action driver.PowerAction) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch action {
	case driver.ActionOn, driver.ActionCycle:
		p.state.power = driver.PowerOn
	case driver.ActionOff:
		p.state.power = driver.PowerOff
	default:
		return driver.Errorf(driver.CodeInvalidArgs, "a cooling unit knows on, off and cycle, not %q", string(action))
	}
	return nil
}

// console is the kind console: a line that echoes.
type console struct{ *unit }

// Open opens the console.
func (c console) Open(*driver.Context) (io.ReadWriteCloser, error) {
	r, w := io.Pipe()
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{r, w, w}, nil
}
