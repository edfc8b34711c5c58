package agentapi

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Bounds of streams. Anybody on a provisioning network may ask for one, so few run at a time.
const (
	maxStreams  = 16
	streamBlock = 1 << 20          // bytes
	streamStall = 30 * time.Second // for one block to be taken
)

// Stream answers GET ?bytes=N with so many bytes that do not compress, for machines that measure their network.
func Stream() http.Handler {
	block := make([]byte, streamBlock)
	_, _ = rand.Read(block) // never fails
	turn := make(chan struct{}, maxStreams)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		if r.Method != http.MethodGet || err != nil || n < 1 || n > agentv1.MaxStream {
			http.Error(w, "GET with bytes from 1 to "+strconv.Itoa(agentv1.MaxStream)+" is answered here", http.StatusBadRequest)
			return
		}
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		default:
			w.Header().Set("Retry-After", "10")
			http.Error(w, "too many machines are measuring now", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		w.Header().Set("Cache-Control", "no-store")
		control := http.NewResponseController(w)
		for n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(streamStall)) // a connection that cannot has its own limits
			sent, err := w.Write(block[:min(n, streamBlock)])
			if err != nil {
				return // the reader has enough, or is gone
			}
			n -= int64(sent)
		}
		_ = control.SetWriteDeadline(time.Time{})
	})
}
