package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/bcx/bcxtest"
	"github.com/better-compute/bcd/plugins/driver"
)

// cooling is what both examples must do.
func cooling(t *testing.T, command ...string) bcxtest.Plugin {
	t.Helper()
	file, err := bcx.PinnedFile(command, "")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := bcx.SHA256File(file)
	if err != nil {
		t.Fatal(err)
	}
	at := func(kind, op, args string) driver.Call {
		return driver.Call{Kind: kind, Operation: op, Args: json.RawMessage(args)}
	}
	return bcxtest.Plugin{
		Host:    bcx.HostConfig{Command: command, SHA256: sum},
		Driver:  "acme-cooling",
		Config:  json.RawMessage(`{"address":"192.0.2.10","credentials":"secret://root/cooling"}`),
		Secrets: driver.SecretMap{"secret://root/cooling": "cool"},
		Results: []bcxtest.Case{
			{Name: "positional", Call: at("acme-cooling", "getTemperature", `[1]`), Want: `{"celsius":22.5}`},
			{Name: "single value", Call: at("acme-cooling", "getTemperature", `2`), Want: `{"celsius":23.5}`},
			{Name: "single value on the wire", Call: at("acme-cooling", "getTemperature", `3`), Want: `{"celsius":24.5}`, Raw: true},
			{Name: "one object", Call: at("acme-cooling", "selfTest", `{"seconds":0}`), Want: `null`},
			{Name: "power by position", Call: at("power", "setPower", `["off"]`), Want: `{}`},
			{Name: "power is off", Call: at("power", "getPower", ``), Want: `{"power":"off"}`},
			{Name: "power by name", Call: at("power", "setPower", `{"action":"on"}`), Want: `{}`},
			{Name: "power is on", Call: at("power", "getPower", ``), Want: `{"power":"on"}`},
			{Name: "own code", Call: at("acme-cooling", "setFanCurve", `[[101]]`), Code: "fan-curve-invalid"},
			{Name: "retryable", Call: at("acme-cooling", "getTemperature", `[9]`), Code: driver.CodeBusy, Retryable: true},
			{Name: "invalid argument", Call: at("power", "setPower", `["soft"]`), Code: driver.CodeInvalidArgs},
			{Name: "unknown operation", Call: at("acme-cooling", "explode", ``), Code: driver.CodeUnsupported},
			{Name: "unknown driver's kind", Call: at("raid", "clear", ``), Code: driver.CodeUnsupported},
		},
		Progress: bcxtest.Case{Call: at("acme-cooling", "setFanCurve", `[[10,20,30,40,50,60,70,80,90,100]]`), Want: `{"points":10}`},
		Slow:     at("acme-cooling", "selfTest", `[{"seconds":600}]`),
		Secret:   bcxtest.Case{Call: at("acme-cooling", "getSerial", ``), Want: `{"serial":"AC-192.0.2.10"}`},
		Stream:   at("console", "open", ``),
		Wrong:    json.RawMessage(`{"address":"192.0.2.10","fans":13}`),
		WrongAt:  "/fans",
		Sick:     "ACME_COOLING_SICK=the license has expired",
	}
}

// buildGo builds the example in Go.
func buildGo(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "cooling")
	if out, err := exec.Command("go", "build", "-o", binary, "./cooling").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// bundleJavaScript bundles the example in JavaScript into its one file, or leaves the test out where that cannot be done.
func bundleJavaScript(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing: make setup-test installs it")
	}
	if _, err := os.Stat("cooling-js/node_modules/esbuild"); err != nil {
		t.Skip("the packages of cooling-js are missing: make setup-test installs them with npm")
	}
	file := filepath.Join(t.TempDir(), "cooling-js")
	build := exec.Command("node", "build.mjs", file)
	build.Dir = "cooling-js"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

func TestGo(t *testing.T) {
	p := cooling(t, buildGo(t))
	bcxtest.Run(t, p)
	bcxtest.Process(t, p)
}

func TestJavaScript(t *testing.T) {
	p := cooling(t, bundleJavaScript(t))
	bcxtest.Run(t, p)
	bcxtest.Process(t, p)
}

// The key that an attempt keeps over its deliveries, and the trace it is part of, reach a plugin in any language, and what the
// plugin logs of them its host's log.
func TestThePluginKnowsTheAttempt(t *testing.T) {
	for language, build := range map[string]func(*testing.T) string{"go": buildGo, "javascript": bundleJavaScript} {
		t.Run(language, func(t *testing.T) {
			p := cooling(t, build(t))
			var said bytes.Buffer
			p.Host.Logger = slog.New(slog.NewJSONHandler(&said, nil))
			h := bcx.NewHost(p.Host)
			drivers, err := h.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := driver.NewContext(t.Context())
			c.IdempotencyKey, c.TraceParent = "wf:wf-7:profile-0#1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			_, err = drivers[0].Invoke(c, driver.Call{Kind: "acme-cooling", Operation: "setFanCurve", Config: p.Config, Args: json.RawMessage(`[[20,60]]`)})
			if err := errors.Join(err, h.Close()); err != nil { // its log is whole once it has ended
				t.Fatal(err)
			}
			var line struct {
				Level, Msg string
				Plugin     struct{ Driver, Points, Attempt, Traceparent string }
			}
			for text := range bytes.Lines(said.Bytes()) {
				if bytes.Contains(text, []byte("fan curve set")) && json.Unmarshal(text, &line) != nil {
					t.Errorf("the log has %s", text)
				}
			}
			if got := line.Plugin; line.Level != "INFO" || got.Driver != "acme-cooling" || got.Points != "2" || got.Attempt != c.IdempotencyKey || got.Traceparent != c.TraceParent {
				t.Errorf("the log says %+v of\n%s", line, &said)
			}
		})
	}
}
