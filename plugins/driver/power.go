package driver

import (
	"encoding/json"
	"strings"
)

// Power reads and changes whether a machine is on.
//
//	getPower()        -> {"power": "on"|"off"|"unknown", "reason"?: text} or the bare string
//	setPower(action)  -> {}      action: "on" "off" "cycle" "reset" "soft"
//
// setPower returns once the machine is in the state that the action ends in, as the BMC reads back: off is done when
// it is off, and is done at once when it was off already. soft is never turned into off.
type Power interface {
	GetPower(ctx *Context) (PowerReading, error)
	SetPower(ctx *Context, action PowerAction) error
}

// The power states. Unknown comes with a reason: a transition, or an answer that cannot be read.
const (
	PowerOn      = "on"
	PowerOff     = "off"
	PowerUnknown = "unknown"
)

// PowerReading is what a BMC says about the power.
type PowerReading struct {
	Power  string `json:"power"`
	Reason string `json:"reason,omitempty"`
}

// UnmarshalJSON also accepts the bare string.
func (p *PowerReading) UnmarshalJSON(b []byte) error {
	*p = PowerReading{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &p.Power)
	}
	type plainReading PowerReading
	return json.Unmarshal(b, (*plainReading)(p))
}

// PowerAction is what setPower is asked to do. A driver may know more than the five.
type PowerAction string

// The power actions.
const (
	ActionOn    PowerAction = "on"
	ActionOff   PowerAction = "off"   // at once, as pulling the plug
	ActionCycle PowerAction = "cycle" // off, then on
	ActionReset PowerAction = "reset" // restart without power loss
	ActionSoft  PowerAction = "soft"  // ask the operating system to shut down
)

// UnmarshalJSON reads the action; "shutdown" is another word for soft.
func (a *PowerAction) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*a = PowerAction(strings.ToLower(s))
	if *a == "shutdown" {
		*a = ActionSoft
	}
	return nil
}

func powerKind() Kind {
	return Kind{Name: "power", Operations: []Operation{
		op0("getPower", Power.GetPower),
		op1("setPower", "action", done1(Power.SetPower)),
	}}
}
