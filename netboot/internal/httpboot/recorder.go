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
	name   string // the path, fit to be recorded
	owner  string // the machine whose file this is
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
	r.bytes += int64(n)
	return n, err
}

// ReadFrom counts and lets net/http use sendfile.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := io.Copy(r.ResponseWriter, src)
	r.bytes += n
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) transfer(req *http.Request) Transfer {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return Transfer{
		Method: clip(req.Method), Path: r.name, Remote: remoteOf(req), Status: r.status, Bytes: r.bytes, Size: r.size,
		Took: time.Since(r.start), Agent: clip(req.UserAgent()), MachineID: r.owner,
	}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200]
	}
	return s
}
