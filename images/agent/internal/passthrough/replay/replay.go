// Package replay plays disks back in tests: what is sent to them must be what a trace expects, byte for byte, and what they
// answer comes from the trace, much of it captured from real drives (see captured/README.md).
package replay

import (
	"embed"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/images/agent/internal/passthrough"
)

//go:embed captured
var captured embed.FS

// Page is a captured page by its file's name, filled up with zeros to size bytes: words as 16-bit little-endian ones.
func Page(tb testing.TB, name string, size int) []byte {
	tb.Helper()
	text, err := captured.ReadFile("captured/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	b := Bytes(tb, string(text))
	if strings.HasSuffix(name, ".words") {
		for i := 0; i+1 < len(b); i += 2 {
			b[i], b[i+1] = b[i+1], b[i]
		}
	}
	if len(b) > size {
		tb.Fatalf("%s has %d bytes", name, len(b))
	}
	return append(b, make([]byte, size-len(b))...)
}

// Bytes reads hex, with spaces and line ends anywhere.
func Bytes(tb testing.TB, text string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Step is one SCSI command and what the disk answered.
type Step struct {
	CDB   string // hex, as sent
	Data  string // hex, from the disk; or what data sent to it must begin with
	Sense string // hex
	Err   error
}

// Trace is a disk that takes the commands of its steps, in their order and no others.
type Trace struct {
	TB    testing.TB
	Steps []Step
}

// Do implements passthrough.SCSI.
func (p *Trace) Do(cdb []byte, dir passthrough.Direction, data []byte, _ time.Duration) ([]byte, error) {
	p.TB.Helper()
	if len(p.Steps) == 0 {
		p.TB.Errorf("unexpected command % x", cdb)
		return nil, errors.New("the trace is over")
	}
	s := p.Steps[0]
	p.Steps = p.Steps[1:]
	if want := Bytes(p.TB, s.CDB); hex.EncodeToString(cdb) != hex.EncodeToString(want) {
		p.TB.Errorf("sent\n% x, not\n% x", cdb, want)
	}
	want := Bytes(p.TB, s.Data)
	switch dir {
	case passthrough.FromDisk:
		copy(data, want)
	case passthrough.ToDisk:
		if !strings.HasPrefix(string(data), string(want)) {
			p.TB.Errorf("data % x", data[:min(40, len(data))])
		}
	}
	return Bytes(p.TB, s.Sense), s.Err
}

// Over fails the test when commands of the trace were not sent.
func (p *Trace) Over() {
	p.TB.Helper()
	if len(p.Steps) > 0 {
		p.TB.Errorf("%d commands were not sent, the next is %s", len(p.Steps), p.Steps[0].CDB)
	}
}
