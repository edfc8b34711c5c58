package bcx

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// benchHost runs the echo driver as a real process.
func benchHost(b *testing.B) *driver.Driver {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	sum, err := SHA256File(self)
	if err != nil {
		b.Fatal(err)
	}
	h := NewHost(HostConfig{Command: []string{self}, SHA256: sum, Env: []string{envRole + "=echo"}, Logger: slog.New(slog.DiscardHandler)})
	drivers, err := h.Start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	return drivers[0]
}

var benchCall = driver.Call{Kind: "power", Operation: "getPower", Config: json.RawMessage(`{"address":"192.0.2.10"}`)}

func BenchmarkInvokeInProcess(b *testing.B) {
	_ = driver.RegisterKind(driver.Kind{Name: "acme-echo"}) // another test's plugin may have done so
	d, err := driver.Define(echoDefinition())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := d.Invoke(driver.NewContext(b.Context()), benchCall); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInvoke(b *testing.B) {
	d := benchHost(b)
	for b.Loop() {
		if _, err := d.Invoke(driver.NewContext(b.Context()), benchCall); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInvoke64 reports calls per second of 64 callers of one plugin.
func BenchmarkInvoke64(b *testing.B) {
	d := benchHost(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	began := time.Now()
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := d.Invoke(driver.NewContext(b.Context()), benchCall); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "calls/s")
}

// BenchmarkStart measures from the decision to start a plugin to its first answer.
func BenchmarkStart(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	sum, err := SHA256File(self)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h := NewHost(HostConfig{Command: []string{self}, SHA256: sum, Env: []string{envRole + "=echo"}, Logger: slog.New(slog.DiscardHandler)})
		drivers, err := h.Start(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := drivers[0].Invoke(driver.NewContext(b.Context()), benchCall); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		h.Close()
		b.StartTimer()
	}
}

// BenchmarkConsole reports the throughput of an echoing byte stream.
func BenchmarkConsole(b *testing.B) {
	d := benchHost(b)
	s, err := d.Stream(driver.NewContext(b.Context()), driver.Call{Kind: "console", Operation: "open", Config: benchCall.Config})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	chunk := make([]byte, 4096)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := s.Write(chunk); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(s, chunk); err != nil {
			b.Fatal(err)
		}
	}
}
