package examples

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// TestConversationInProtocol has the conversation that PROTOCOL.md prints with the example, and compares.
func TestConversationInProtocol(t *testing.T) {
	text, err := os.ReadFile("../bcx/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	p := cooling(t, buildGo(t))
	p.Host.Logger = slog.New(slog.DiscardHandler)
	h := bcx.NewHost(p.Host)
	drivers, err := h.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()

	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	ctx := driver.NewContext(t.Context())
	ctx.Secrets = p.Secrets
	ctx.OnProgress = func(p driver.Progress) {
		say(`plugin  {"progress": {"phase": %q, "message": %q, "done": %d, "total": %d}}`, p.Phase, p.Message, p.Done, p.Total)
	}
	invoke := func(operation, args string) {
		out, err := drivers[0].Invoke(ctx, driver.Call{Kind: "acme-cooling", Operation: operation, Config: p.Config, Args: json.RawMessage(args)})
		var e *driver.Error
		if errors.As(err, &e) {
			say(`plugin  {"error": {"code": %q, "message": %q, "retryable": %v}}`, e.Code, e.Message, e.Retryable)
			return
		}
		say(`plugin  {"result_json": %s}`, strconv.Quote(string(out)))
	}
	invoke("setFanCurve", `[[20,60]]`)
	invoke("getTemperature", `[9]`)
	for kind, ops := range drivers[0].RetrySafe() {
		for _, op := range ops {
			say("%q", kind+"."+op)
		}
	}
	for _, line := range said {
		if !strings.Contains(string(text), line) {
			t.Errorf("PROTOCOL.md does not have %s", line)
		}
	}
}
