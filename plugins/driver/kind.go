package driver

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
)

// Kind is a hardware job and its operations.
type Kind struct {
	Name       string // [a-z][a-z0-9-]{0,31}
	Operations []Operation
}

// Operation is one thing that can be asked of an implementation of a kind.
type Operation struct {
	Name string // a JavaScript identifier, such as "setPower"
	// Params are the names of the positional arguments, in order.
	Params []string
	// Spread names the members of the last parameter, an object, that named arguments may give at the top level:
	// {"device":"pxe","persistent":true} for setBootDevice(device, {persistent, uefi}).
	Spread   []string
	Optional bool // an implementation may lack it
	Stream   bool // the result is a byte stream, not JSON
	call     call
}

// call runs an operation on an implementation. ok is false when the implementation lacks it.
type call func(ctx *Context, impl any, args []json.RawMessage) (result any, ok bool, err error)

// Invoker is an implementation that takes every operation of its kind by name: what a plugin's proxy and the
// implementations of kinds without a Go interface are. args are positional; a result must marshal to JSON.
type Invoker interface {
	Invoke(ctx *Context, operation string, args []json.RawMessage) (any, error)
}

var (
	kindRE      = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	operationRE = regexp.MustCompile(`^[a-zA-Z_$][a-zA-Z0-9_$]{0,63}$`)
)

// kinds is the table of known kinds: the eleven built in, and those that packages add while they start.
var kinds = struct {
	sync.RWMutex
	m map[string]Kind
}{m: builtinKinds()}

// RegisterKind makes a kind known, so that Define accepts it and its operations can be invoked by name. Implementations
// of it are Invokers. Call it while the program starts, before the first Define of a driver that implements it.
func RegisterKind(k Kind) error {
	if !kindRE.MatchString(k.Name) {
		return invalid("kind", "%q is not a kind: use 1 to 32 lower-case letters, digits and hyphens", clip(k.Name))
	}
	seen := map[string]bool{}
	for i, op := range k.Operations {
		field := fmt.Sprintf("operations[%d]", i)
		if !operationRE.MatchString(op.Name) {
			return invalid(field, "%q is not an operation's name", clip(op.Name))
		}
		if seen[op.Name] {
			return invalid(field, "the operation %q is listed twice", op.Name)
		}
		seen[op.Name] = true
	}
	kinds.Lock()
	defer kinds.Unlock()
	if _, taken := kinds.m[k.Name]; taken {
		return invalid("kind", "the kind %q is registered already", k.Name)
	}
	k.Operations = slices.Clone(k.Operations)
	kinds.m[k.Name] = k
	return nil
}

// LookupKind finds a registered kind.
func LookupKind(name string) (Kind, bool) {
	kinds.RLock()
	defer kinds.RUnlock()
	k, ok := kinds.m[name]
	return k, ok
}

// Kinds are the names of all registered kinds, sorted.
func Kinds() []string {
	kinds.RLock()
	defer kinds.RUnlock()
	return slices.Sorted(maps.Keys(kinds.m))
}

// Operation finds an operation by name.
func (k Kind) Operation(name string) (Operation, bool) {
	for _, op := range k.Operations {
		if op.Name == name {
			return op, true
		}
	}
	return Operation{}, false
}

func builtinKinds() map[string]Kind {
	m := map[string]Kind{}
	for _, k := range []Kind{
		powerKind(), managementKind(), bootKind(), deployKind(), inspectKind(), virtualMediaKind(),
		consoleKind(), biosKind(), raidKind(), firmwareKind(), runtimeKind(),
	} {
		m[k.Name] = k
	}
	return m
}

// op0, op1 and op2 bind a method of an interface to an operation of no, one or two parameters.
func op0[I, R any](name string, f func(I, *Context) (R, error)) Operation {
	return Operation{Name: name, call: func(ctx *Context, impl any, _ []json.RawMessage) (any, bool, error) {
		i, ok := impl.(I)
		if !ok {
			return nil, false, nil
		}
		r, err := f(i, ctx)
		return r, true, err
	}}
}

func op1[I, A, R any](name, param string, f func(I, *Context, A) (R, error)) Operation {
	return Operation{Name: name, Params: []string{param}, call: func(ctx *Context, impl any, args []json.RawMessage) (any, bool, error) {
		i, ok := impl.(I)
		if !ok {
			return nil, false, nil
		}
		a, err := argument[A](param, args, 0)
		if err != nil {
			return nil, true, err
		}
		r, err := f(i, ctx, a)
		return r, true, err
	}}
}

func op2[I, A, B, R any](name, p1, p2 string, f func(I, *Context, A, B) (R, error)) Operation {
	return Operation{Name: name, Params: []string{p1, p2}, call: func(ctx *Context, impl any, args []json.RawMessage) (any, bool, error) {
		i, ok := impl.(I)
		if !ok {
			return nil, false, nil
		}
		a, err := argument[A](p1, args, 0)
		if err != nil {
			return nil, true, err
		}
		b, err := argument[B](p2, args, 1)
		if err != nil {
			return nil, true, err
		}
		r, err := f(i, ctx, a, b)
		return r, true, err
	}}
}

// done0, done1 and done2 turn a method without result into one whose result is {}.
func done0[I any](f func(I, *Context) error) func(I, *Context) (struct{}, error) {
	return func(i I, c *Context) (struct{}, error) { return struct{}{}, f(i, c) }
}

func done1[I, A any](f func(I, *Context, A) error) func(I, *Context, A) (struct{}, error) {
	return func(i I, c *Context, a A) (struct{}, error) { return struct{}{}, f(i, c, a) }
}

func done2[I, A, B any](f func(I, *Context, A, B) error) func(I, *Context, A, B) (struct{}, error) {
	return func(i I, c *Context, a A, b B) (struct{}, error) { return struct{}{}, f(i, c, a, b) }
}

func optional(o Operation) Operation { o.Optional = true; return o }

func spread(o Operation, members ...string) Operation { o.Spread = members; return o }

func stream(o Operation) Operation { o.Stream = true; return o }
