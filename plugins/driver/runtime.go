package driver

import (
	"encoding/json"
	"io"
)

// Runtime runs instances (virtual machines, containers) on a machine.
//
//	traits()     -> ["<trait>", ...]
//	list()       -> [Instance, ...]
//	apply(spec)  -> Instance    creates or converges; the spec is the driver's own
//	reboot(id)   -> {}
//	remove(id)   -> {}          done at once when there is none
type Runtime interface {
	Traits(ctx *Context) ([]string, error)
	List(ctx *Context) ([]Instance, error)
	Apply(ctx *Context, spec json.RawMessage) (Instance, error)
	Reboot(ctx *Context, id string) error
	Remove(ctx *Context, id string) error
}

// RuntimeConsole is the optional console of an instance.
//
//	console(id) -> a byte stream
type RuntimeConsole interface {
	Console(ctx *Context, id string) (io.ReadWriteCloser, error)
}

// Instance is one thing that runs.
type Instance struct {
	ID    string          `json:"id"`
	Name  string          `json:"name,omitempty"`
	State string          `json:"state"` // "running", "stopped", "failed", "unknown"
	Spec  json.RawMessage `json:"spec,omitempty"`
}

func runtimeKind() Kind {
	return Kind{Name: "runtime", Operations: []Operation{
		op0("traits", Runtime.Traits),
		op0("list", Runtime.List),
		op1("apply", "spec", Runtime.Apply),
		op1("reboot", "id", done1(Runtime.Reboot)),
		op1("remove", "id", done1(Runtime.Remove)),
		optional(stream(op1("console", "id", RuntimeConsole.Console))),
	}}
}
