package driver

import "io"

// Console is a machine's serial console.
//
//	open() -> a byte stream
//
// The context bounds opening; closing the stream ends it.
type Console interface {
	Open(ctx *Context) (io.ReadWriteCloser, error)
}

func consoleKind() Kind {
	return Kind{Name: "console", Operations: []Operation{stream(op0("open", Console.Open))}}
}
