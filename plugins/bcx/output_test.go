package bcx

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"
)

// What was written before the deadline is read after it, and a writer that is still there ends nothing and keeps nobody.
func TestOutputAfterItsDeadline(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := io.WriteString(w, "last words"); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	out := NewOutput(r)
	if got, err := io.ReadAll(out); err != nil || string(got) != "last words" {
		t.Errorf("read %q, %v", got, err)
	}
	go func() { // who writes on and on is heard for a bounded time
		for line := bytes.Repeat([]byte("x"), 4096); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}()
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(out); err != nil || len(got) > maxLeft {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}
