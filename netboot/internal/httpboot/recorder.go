package httpboot

import (
	"io"
	"net/http"
	"time"
)

// recorder counts what was answered. It keeps ReadFrom, by which a file leaves without passing through this process.
type recorder struct {
	http.ResponseWriter
	start  time.Time
	status int
	bytes  int64
	size   int64
	name   string        // the path, fit to be recorded
	owner  string        // the machine whose file this is
	sent   func(n int64) // told of bytes that left, on a path where somebody wants to know; else nil
}

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.count(int64(n))
	return n, err
}

func (r *recorder) count(n int64) {
	r.bytes += n
	if r.sent != nil && n > 0 && r.status < http.StatusBadRequest {
		r.sent(n)
	}
}

// ReadFrom counts and lets net/http use sendfile.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	whole, ok := src.(*io.LimitedReader)
	if r.sent == nil || !ok {
		n, err := io.Copy(r.ResponseWriter, src)
		r.count(n)
		return n, err
	}
	return r.readParts(whole)
}

// partSize is how often somebody is told of bytes that left, in bytes.
const partSize = 4 << 20

// readParts sends a file in parts, each by the kernel, and counts each.
func (r *recorder) readParts(whole *io.LimitedReader) (total int64, err error) {
	for whole.N > 0 && err == nil {
		part := &io.LimitedReader{R: whole.R, N: min(whole.N, partSize)}
		want := part.N
		var n int64
		n, err = io.Copy(r.ResponseWriter, part)
		whole.N -= n
		total += n
		r.count(n)
		if n < want && err == nil {
			return total, nil // the file ended early
		}
	}
	return total, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) transfer(req *http.Request) Transfer {
	status := r.status
	if status == 0 {
		status = http.StatusOK
	}
	return Transfer{
		Method: clip(req.Method), Path: r.name, Remote: remoteOf(req), Status: status, Bytes: r.bytes, Size: r.size,
		Took: time.Since(r.start), Agent: clip(req.UserAgent()), MachineID: r.owner,
	}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200]
	}
	return s
}
