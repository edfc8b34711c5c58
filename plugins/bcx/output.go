package bcx

import (
	"errors"
	"io"
	"os"
)

// maxLeft bounds what is read of a pipe after its deadline, in bytes: as much as a pipe may hold unless root enlarged it.
const maxLeft = 1 << 20

// Output reads our end of a pipe that a process writes to. When the file's read deadline has passed, what is in the pipe is
// still read, and its end is the end: so nothing is lost of what an ended process said, however late this side comes to
// read it, and a child that holds the pipe open keeps nobody waiting.
type Output struct {
	pipe *os.File
	left int // bytes that may still be read after the deadline
}

// NewOutput makes a reader of a pipe. The pipe remains the caller's to close.
func NewOutput(pipe *os.File) *Output { return &Output{pipe, maxLeft} }

// Read reads what is said.
func (o *Output) Read(p []byte) (int, error) {
	n, err := o.pipe.Read(p)
	if errors.Is(err, os.ErrClosed) { // by who reaped the process
		return 0, io.EOF
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	n = readWaiting(o.pipe, p[:min(len(p), o.left)])
	if o.left -= n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
