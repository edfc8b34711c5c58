package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// fake implements power, management, console and deploy, and notes its last call.
type fake struct {
	last   string
	config string
	fail   error
}

func (f *fake) GetPower(*Context) (PowerReading, error) { return PowerReading{Power: PowerOn}, f.fail }

func (f *fake) SetPower(_ *Context, a PowerAction) error {
	f.last = "setPower " + string(a)
	if a == "panic" {
		panic("hot secret")
	}
	return f.fail
}

func (f *fake) SetBootDevice(_ *Context, d BootDevice, o BootOptions) (BootResult, error) {
	b, _ := json.Marshal(o)
	f.last = "setBootDevice " + string(d) + " " + string(b)
	return BootResult{}, f.fail
}

func (f *fake) Open(*Context) (io.ReadWriteCloser, error) { return pipe{}, f.fail }

func (f *fake) Deploy(c *Context, s DeploySpec) (DeployResult, error) {
	c.Emit(Progress{Phase: "write", Done: 1, Total: 2})
	f.last = "deploy " + s.Image
	return DeployResult{Bytes: 2}, f.fail
}

func (f *fake) TearDown(_ *Context, o TearDownOptions) error {
	f.last = "tearDown " + o.Wipe
	return f.fail
}

type pipe struct{ bytes.Buffer }

func (pipe) Close() error                { return nil }
func (pipe) Read([]byte) (int, error)    { return 0, io.EOF }
func (pipe) Write(p []byte) (int, error) { return len(p), nil }

// named is an Invoker.
type named struct{ got string }

func (n *named) Invoke(_ *Context, op string, args []json.RawMessage) (any, error) {
	b, _ := json.Marshal(args)
	n.got = op + string(b)
	return json.RawMessage(`[1,2]`), nil
}

func driverOf(t *testing.T, impl any, kinds ...string) *Driver {
	t.Helper()
	def := valid()
	def.Implements, def.RetrySafe = map[string]Factory{}, nil
	for _, k := range kinds {
		def.Implements[k] = func(config json.RawMessage) (any, error) {
			if f, ok := impl.(*fake); ok {
				f.config = string(config)
			}
			return impl, nil
		}
	}
	d, err := Define(def)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var address = json.RawMessage(`{"address":"192.0.2.1"}`)

func TestArgumentForms(t *testing.T) {
	f := &fake{}
	d := driverOf(t, f, "power", "management", "deploy")
	for _, c := range []struct{ kind, op, args, want string }{
		{"power", "setPower", `["on"]`, "setPower on"},
		{"power", "setPower", `["on",null]`, "setPower on"}, // trailing nulls are dropped
		{"power", "setPower", `"SHUTDOWN"`, "setPower soft"},
		{"power", "setPower", `{"action":"off"}`, "setPower off"},
		{"management", "setBootDevice", `["hdd",{"persistent":true}]`, `setBootDevice disk {"persistent":true}`},
		{"management", "setBootDevice", `["cd"]`, `setBootDevice cdrom {}`},
		{"management", "setBootDevice", `{"device":"pxe","uefi":false}`, `setBootDevice pxe {"uefi":false}`},
		{"management", "setBootDevice", `{"device":"pxe","options":{"uefi":true},"persistent":true}`, `setBootDevice pxe {"persistent":true,"uefi":true}`},
		{"deploy", "deploy", `[{"image":"i1"}]`, "deploy i1"},
		{"deploy", "deploy", `{"image":"i1","machine":"m"}`, "deploy i1"}, // one parameter: the object is the argument
		{"deploy", "deploy", `{"spec":{"image":"i2"}}`, "deploy i2"},
		{"deploy", "tearDown", `{"wipe":"discard"}`, "tearDown discard"},
		{"deploy", "tearDown", ``, "tearDown "},
		{"deploy", "tearDown", `[]`, "tearDown "},
	} {
		f.last = ""
		if _, err := d.Invoke(NewContext(t.Context()), Call{Kind: c.kind, Operation: c.op, Config: address, Args: json.RawMessage(c.args)}); err != nil || f.last != c.want {
			t.Errorf("%s%s: %q, %v, want %q", c.op, c.args, f.last, err, c.want)
		}
	}
}

func TestBadArguments(t *testing.T) {
	d := driverOf(t, &fake{}, "power", "management", "deploy")
	for _, c := range [][3]string{
		{"power", "setPower", `["on","off"]`}, {"power", "setPower", `[7]`}, {"power", "setPower", `{"acton":"on"}`}, {"power", "setPower", `[`},
		{"power", "setPower", `{`}, {"power", "setPower", `nonsense`}, {"power", "getPower", `["x"]`}, {"power", "getPower", `{"x":1}`},
		{"management", "setBootDevice", `{"device":"pxe","for":"ever"}`}, {"management", "setBootDevice", `["pxe",{"persistant":true}]`},
		{"management", "setBootDevice", `["pxe",true]`}, {"management", "setBootDevice", `{"device":"pxe","options":7,"uefi":true}`},
		{"deploy", "deploy", `[{"image":7}]`},
	} {
		_, err := d.Invoke(NewContext(t.Context()), Call{Kind: c[0], Operation: c[1], Config: address, Args: json.RawMessage(c[2])})
		if e := AsError(err); e == nil || e.Code != CodeInvalidArgs || strings.Contains(e.Message, "Go ") || strings.Contains(e.Message, "driver.") {
			t.Errorf("%s%s gave %v", c[1], c[2], err)
		}
	}
}

func TestUnsupported(t *testing.T) {
	d := driverOf(t, &fake{}, "power", "management", "console")
	for _, c := range [][2]string{
		{"power", "explode"}, {"bios", "getSettings"}, {"management", "rotateCredential"}, {"management", "probe"}, {"console", "open"}, {"", ""},
	} {
		_, err := d.Invoke(NewContext(t.Context()), Call{Kind: c[0], Operation: c[1], Config: address})
		if e := AsError(err); e == nil || e.Code != CodeUnsupported {
			t.Errorf("%s.%s gave %v", c[0], c[1], err)
		}
	}
	s, err := d.Stream(NewContext(t.Context()), Call{Kind: "console", Operation: "open", Config: address})
	if err != nil || s.Close() != nil {
		t.Errorf("console: %v", err)
	}
	if _, err := d.Stream(NewContext(t.Context()), Call{Kind: "power", Operation: "getPower", Config: address}); AsError(err).Code != CodeUnsupported {
		t.Errorf("a stream of a result: %v", err)
	}
}

func TestResultsAndProgress(t *testing.T) {
	f := &fake{}
	d := driverOf(t, f, "power", "deploy", "management")
	var seen []Progress
	c := NewContext(t.Context())
	c.OnProgress = func(p Progress) { seen = append(seen, p) }
	for _, want := range [][4]string{
		{"power", "getPower", ``, `{"power":"on"}`}, {"power", "setPower", `["on"]`, `{}`},
		{"management", "setBootDevice", `["pxe"]`, `{}`}, {"deploy", "deploy", `[{}]`, `{"bytes":2}`},
	} {
		got, err := d.Invoke(c, Call{Kind: want[0], Operation: want[1], Config: address, Args: json.RawMessage(want[2])})
		if err != nil || string(got) != want[3] {
			t.Errorf("%s: %s, %v, want %s", want[1], got, err, want[3])
		}
	}
	if len(seen) != 1 || seen[0].Total != 2 {
		t.Errorf("progress %v", seen)
	}
}

func TestDefaultsAreApplied(t *testing.T) {
	f := &fake{}
	d := driverOf(t, f, "power")
	if _, err := d.Invoke(NewContext(t.Context()), Call{Kind: "power", Operation: "getPower", Config: json.RawMessage(`{"address":"x","options":{}}`)}); err != nil {
		t.Fatal(err)
	}
	if want := `{"address":"x","options":{"suite":17},"timeout":"30s"}`; f.config != want {
		t.Errorf("the factory got %s, want %s", f.config, want)
	}
	def := valid()
	def.Foreign, def.RetrySafe = true, nil
	def.Implements = map[string]Factory{"power": func(config json.RawMessage) (any, error) { f.config = string(config); return f, nil }}
	foreign, err := Define(def)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.Invoke(NewContext(t.Context()), Call{Kind: "power", Operation: "getPower", Config: address}); err != nil || f.config != string(address) {
		t.Errorf("a plugin got %s, %v, want the value unchanged", f.config, err)
	}
}

func TestWrongConfigRunsNothing(t *testing.T) {
	f := &fake{}
	d := driverOf(t, f, "power")
	_, err := d.Invoke(NewContext(t.Context()), Call{Kind: "power", Operation: "setPower", Config: json.RawMessage(`{}`), Args: json.RawMessage(`["on"]`)})
	if e := AsError(err); e == nil || e.Code != CodeInvalidConfig || f.last != "" {
		t.Errorf("got %v, ran %q", err, f.last)
	}
}

func TestErrors(t *testing.T) {
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		fail error
		code string
	}{
		"its own code":    {t.Context(), Errorf("acme-broke", "x"), "acme-broke"},
		"not kebab":       {t.Context(), Errorf("Acme_Broke", "x"), CodeDriverError},
		"plain":           {t.Context(), errors.New("x"), CodeDriverError},
		"deadline":        {expired, errors.New("x"), CodeTimeout},
		"wrapped":         {t.Context(), errors.Join(errors.New("a"), Errorf(CodeBusy, "b").Again()), CodeBusy},
		"context's error": {t.Context(), context.Canceled, CodeCancelled},
	} {
		d := driverOf(t, &fake{fail: c.fail}, "power")
		_, err := d.Invoke(NewContext(c.ctx), Call{Kind: "power", Operation: "getPower", Config: address})
		if e := AsError(err); e == nil || e.Code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if AsError(nil) != nil {
		t.Error("no error became one")
	}
}

func TestRetryableOnlyWhereRetrySafe(t *testing.T) {
	def := valid()
	def.Implements = map[string]Factory{"power": func(json.RawMessage) (any, error) { return &fake{fail: Errorf(CodeBusy, "later").Again()}, nil }}
	def.RetrySafe = map[string][]string{"power": {"getPower"}}
	d, err := Define(def)
	if err != nil {
		t.Fatal(err)
	}
	for op, want := range map[string]bool{"getPower": true, "setPower": false} {
		_, err := d.Invoke(NewContext(t.Context()), Call{Kind: "power", Operation: op, Config: address})
		if e := AsError(err); e.Code != CodeBusy || e.Retryable != want {
			t.Errorf("%s: %+v, want retryable %v", op, e, want)
		}
	}
}

func TestPanicIsAnError(t *testing.T) {
	var log bytes.Buffer
	d := driverOf(t, &fake{}, "power")
	c := NewContext(t.Context())
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, err := d.Invoke(c, Call{Kind: "power", Operation: "setPower", Config: address, Args: json.RawMessage(`["panic"]`)})
	if e := AsError(err); e == nil || e.Code != CodeDriverError || strings.Contains(e.Message, "hot") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(log.String(), "panicked") {
		t.Error("the panic is not logged")
	}
}

func TestRegisteredKindIsInvokedByName(t *testing.T) {
	cooling := Kind{Name: "acme-cooling", Operations: []Operation{{Name: "getFanCurve"}, {Name: "setFanCurve", Params: []string{"curve"}}}}
	if err := RegisterKind(cooling); err != nil {
		t.Fatal(err)
	}
	for _, k := range []Kind{cooling, {Name: "power"}, {Name: "Bad!"}, {Name: "x", Operations: []Operation{{Name: "a b"}}}, {Name: "y", Operations: []Operation{{Name: "a"}, {Name: "a"}}}} {
		if err := RegisterKind(k); err == nil {
			t.Errorf("the kind %+v was accepted", k)
		}
	}
	n := &named{}
	d := driverOf(t, n, "acme-cooling", "power")
	for _, c := range [][4]string{
		{"acme-cooling", "setFanCurve", `{"curve":[1,2]}`, `setFanCurve[[1,2]]`},
		{"acme-cooling", "setFanCurve", `{"speed":9}`, `setFanCurve[{"speed":9}]`}, // with, as the one argument
		{"acme-cooling", "setFanCurve", `[[3]]`, `setFanCurve[[3]]`},
		{"acme-cooling", "getFanCurve", ``, `getFanCurvenull`},
		{"power", "setPower", `{"action":"on"}`, `setPower["on"]`}, // a plugin's proxy gets positional arguments
	} {
		out, err := d.Invoke(NewContext(t.Context()), Call{Kind: c[0], Operation: c[1], Config: address, Args: json.RawMessage(c[2])})
		if err != nil || n.got != c[3] || string(out) != "[1,2]" {
			t.Errorf("%s%s: %s, %q, %v, want %q", c[1], c[2], out, n.got, err, c[3])
		}
	}
}

func TestSecrets(t *testing.T) {
	c := NewContext(t.Context())
	if _, err := c.Secret("username"); AsError(err).Code != CodeNoCredentials {
		t.Errorf("without secrets: %v", err)
	}
	c.Secrets = SecretMap{"username": "u"}
	if v, err := c.Secret("username"); v != "u" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := c.Secret("other"); AsError(err).Code != CodeNoCredentials {
		t.Errorf("an undelivered secret: %v", err)
	}
}

func TestPowerReadingForms(t *testing.T) {
	for in, want := range map[string]string{`"on"`: "on", `{"power":"off"}`: "off", `{"power":"unknown","reason":"x"}`: "unknown", `{}`: ""} {
		var p PowerReading
		if err := json.Unmarshal([]byte(in), &p); err != nil || p.Power != want {
			t.Errorf("%s: %+v, %v", in, p, err)
		}
	}
}

func FuzzInvoke(f *testing.F) {
	for _, s := range []string{`["pxe",{"persistent":true}]`, `{"device":"cd","uefi":null}`, `"x"`, `[[[[`, `{"options":{"a":1}}`} {
		f.Add(s, `{"address":"x"}`)
	}
	def := valid()
	def.Implements = map[string]Factory{"management": func(json.RawMessage) (any, error) { return &fake{}, nil }}
	def.RetrySafe = nil
	d, err := Define(def)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, args, config string) {
		out, err := d.Invoke(NewContext(t.Context()), Call{Kind: "management", Operation: "setBootDevice", Config: json.RawMessage(config), Args: json.RawMessage(args)})
		if e := AsError(err); e != nil && e.Code == CodeDriverError {
			t.Fatalf("a crash: %v", e)
		} else if e == nil && !json.Valid(out) {
			t.Fatalf("the result is %q", out)
		}
	})
}

func FuzzDefineSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"default":1,"x-bc":{"kind":"secret"}}}}`, `{"a":1}`)
	f.Add(`{"$ref":"#"}`, `{}`)
	f.Add(`{"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"$ref":"https://schemas.example/x"}}}`, `7`)
	f.Fuzz(func(_ *testing.T, schema, config string) {
		s, err := compileSchema([]byte(schema))
		if err != nil {
			return
		}
		s.validate(json.RawMessage(config))
		_, _ = s.withDefaults(json.RawMessage(config))
	})
}

// closing is a stream that notes its end.
type closing struct {
	pipe
	ended *bool
}

func (c closing) Close() error { *c.ended = true; return nil }

// streams is an Invoker of a kind nobody registered, whose operation gives a stream.
type streams struct{ ended *bool }

func (s streams) Invoke(*Context, string, []json.RawMessage) (any, error) {
	return closing{ended: s.ended}, nil
}

func TestInvokeClosesAStreamNobodyAskedFor(t *testing.T) {
	ended := false
	d, err := Define(Definition{ID: "acme", Version: "1.0.0", RunsOn: RunsOnSite, Foreign: true,
		Implements: map[string]Factory{"acme-tail": func(json.RawMessage) (any, error) { return streams{&ended}, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Invoke(NewContext(t.Context()), Call{Kind: "acme-tail", Operation: "tail"})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeUnsupported || !ended {
		t.Errorf("%v, closed %v", err, ended)
	}
	s, err := d.Stream(NewContext(t.Context()), Call{Kind: "acme-tail", Operation: "tail"})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestSecretMapNames(t *testing.T) {
	if got := (SecretMap{"username": "a", "password": "b"}).Names(); len(got) != 2 || got[0] != "password" {
		t.Error(got)
	}
}
