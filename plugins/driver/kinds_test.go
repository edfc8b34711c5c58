package driver

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// reference is the table of the eleven kinds: an operation's parameters in order, "?" before one that an implementation may
// lack, "~" before one that gives a byte stream.
var reference = map[string][]string{
	"power":         {"getPower()", "setPower(action)"},
	"management":    {"setBootDevice(device, options)", "?rotateCredential(newPassword, options)", "?probe()", "?getBootOrder()", "?setBootOrder(order)"},
	"boot":          {"prepareRamdisk(spec)", "prepareInstance(boot)", "cleanUp()"},
	"deploy":        {"deploy(spec)", "tearDown(options)"},
	"inspect":       {"inspect()"},
	"virtual-media": {"insert(iso)", "eject()"},
	"console":       {"~open()"},
	"bios":          {"getSettings()", "applySettings(settings)"},
	"raid":          {"applyLayout(layout)", "clear()", "?getLayout()"},
	"firmware":      {"components()", "update(component, image)"},
	"runtime":       {"traits()", "list()", "apply(spec)", "reboot(id)", "remove(id)", "?~console(id)"},
}

func TestKindsAreTheReferences(t *testing.T) {
	for name, want := range reference {
		k, known := LookupKind(name)
		var got []string
		for _, o := range k.Operations {
			mark := ""
			if o.Optional {
				mark += "?"
			}
			if o.Stream {
				mark += "~"
			}
			got = append(got, mark+o.Name+"("+strings.Join(o.Params, ", ")+")")
		}
		if !known || !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if n := len(builtinKinds()); n != len(reference) {
		t.Errorf("%d kinds are built in", n)
	}
}

// spare implements every kind without the operations that may be lacking; whole has those too. Each notes what it was given.
type spare struct{ got string }

func (p *spare) note(op string, args ...any) {
	raw, _ := json.Marshal(args)
	p.got = op + string(raw)
}

func (p *spare) GetPower(*Context) (PowerReading, error) {
	p.note("getPower")
	return PowerReading{Power: "on"}, nil
}
func (p *spare) SetPower(_ *Context, a PowerAction) error { p.note("setPower", a); return nil }
func (p *spare) PrepareRamdisk(_ *Context, s RamdiskSpec) error {
	p.note("prepareRamdisk", s)
	return nil
}
func (p *spare) PrepareInstance(_ *Context, b InstanceBoot) error {
	p.note("prepareInstance", b)
	return nil
}
func (p *spare) CleanUp(*Context) error { p.note("cleanUp"); return nil }
func (p *spare) SetBootDevice(_ *Context, d BootDevice, o BootOptions) (BootResult, error) {
	p.note("setBootDevice", d, o)
	return BootResult{Target: "Pxe"}, nil
}
func (p *spare) Deploy(_ *Context, s DeploySpec) (DeployResult, error) {
	p.note("deploy", s)
	return DeployResult{Bytes: 7}, nil
}
func (p *spare) TearDown(_ *Context, o TearDownOptions) error { p.note("tearDown", o); return nil }
func (p *spare) Inspect(*Context) (Inventory, error) {
	p.note("inspect")
	return Inventory{Model: "M1", MACs: []string{}, IPAddresses: []string{}}, nil
}
func (p *spare) Insert(_ *Context, iso string) error       { p.note("insert", iso); return nil }
func (p *spare) Eject(*Context) error                      { p.note("eject"); return nil }
func (p *spare) Open(*Context) (io.ReadWriteCloser, error) { p.note("open"); return pipe{}, nil }
func (p *spare) GetSettings(*Context) (map[string]any, error) {
	p.note("getSettings")
	return map[string]any{"Boot": true}, nil
}
func (p *spare) ApplySettings(_ *Context, s map[string]any) (BIOSResult, error) {
	p.note("applySettings", s)
	return BIOSResult{OnReboot: true}, nil
}
func (p *spare) ApplyLayout(_ *Context, l RAIDLayout) (RAIDLayout, error) {
	p.note("applyLayout", l)
	return l, nil
}
func (p *spare) Clear(*Context) error { p.note("clear"); return nil }
func (p *spare) Components(*Context) ([]FirmwareComponent, error) {
	p.note("components")
	return []FirmwareComponent{{ID: "BIOS"}}, nil
}
func (p *spare) Update(_ *Context, component string, i FirmwareImage) (FirmwareResult, error) {
	p.note("update", component, i)
	return FirmwareResult{Version: "2"}, nil
}
func (p *spare) Traits(*Context) ([]string, error) { p.note("traits"); return []string{"kvm"}, nil }
func (p *spare) List(*Context) ([]Instance, error) {
	p.note("list")
	return []Instance{{ID: "i1", State: "running"}}, nil
}
func (p *spare) Apply(_ *Context, spec json.RawMessage) (Instance, error) {
	p.note("apply", spec)
	return Instance{ID: "i1", State: "running"}, nil
}
func (p *spare) Reboot(_ *Context, id string) error { p.note("reboot", id); return nil }
func (p *spare) Remove(_ *Context, id string) error { p.note("remove", id); return nil }

type whole struct{ spare }

func (w *whole) RotateCredential(_ *Context, password string, o RotateOptions) error {
	w.note("rotateCredential", password, o)
	return nil
}
func (w *whole) Probe(*Context) (Card, error) { w.note("probe"); return Card{Model: "M1"}, nil }
func (w *whole) BootOrder(*Context) (BootOrder, error) {
	w.note("getBootOrder")
	return BootOrder{Order: []string{"a"}}, nil
}
func (w *whole) SetBootOrder(_ *Context, order []string) (BootOrder, error) {
	w.note("setBootOrder", order)
	return BootOrder{Order: order}, nil
}
func (w *whole) GetLayout(*Context) (RAIDLayout, error) {
	w.note("getLayout")
	return RAIDLayout{}, nil
}
func (w *whole) Console(_ *Context, id string) (io.ReadWriteCloser, error) {
	w.note("console", id)
	return pipe{}, nil
}

// Every operation of the eleven kinds reaches its method with its arguments, by position and by name, and what an
// implementation lacks is unsupported-operation.
func TestEveryOperationOfEveryKind(t *testing.T) {
	all := map[string]struct{ args, named, got, result string }{
		"power.getPower":              {``, ``, `getPower`, `{"power":"on"}`},
		"power.setPower":              {`["off"]`, `{"action":"off"}`, `setPower["off"]`, `{}`},
		"management.setBootDevice":    {`["pxe",{"persistent":true}]`, `{"device":"pxe","persistent":true}`, `setBootDevice["pxe",{"persistent":true}]`, `{"target":"Pxe"}`},
		"management.rotateCredential": {`[null,{"username":"u"}]`, `{"username":"u"}`, `rotateCredential["",{"username":"u"}]`, `{}`},
		"management.probe":            {``, ``, `probe`, ``},
		"management.getBootOrder":     {``, ``, `getBootOrder`, `{"order":["a"],"options":null,"writable":false}`},
		"management.setBootOrder":     {`[["b","a"]]`, `{"order":["b","a"]}`, `setBootOrder[["b","a"]]`, `{"order":["b","a"],"options":null,"writable":false}`},
		"boot.prepareRamdisk":         {`[{"machine":"m","firmware":"uefi"}]`, `{"machine":"m","firmware":"uefi"}`, `prepareRamdisk[{"machine":"m","firmware":"uefi"}]`, `{}`},
		"boot.prepareInstance":        {`[{"machine":"m"}]`, `{"boot":{"machine":"m"}}`, `prepareInstance[{"machine":"m"}]`, `{}`},
		"boot.cleanUp":                {``, ``, `cleanUp`, `{}`},
		"deploy.deploy":               {`[{"machine":"m","image":"i","sha256":""}]`, `{"machine":"m","image":"i"}`, `deploy[{"machine":"m","image":"i","sha256":""}]`, `{"bytes":7}`},
		"deploy.tearDown":             {`[{"wipe":"secure"}]`, `{"wipe":"secure"}`, `tearDown[{"wipe":"secure"}]`, `{}`},
		"inspect.inspect":             {``, ``, `inspect`, ``},
		"virtual-media.insert":        {`["https://images.example/a.iso"]`, `{"iso":"https://images.example/a.iso"}`, `insert["https://images.example/a.iso"]`, `{}`},
		"virtual-media.eject":         {``, ``, `eject`, `{}`},
		"console.open":                {``, ``, `open`, "stream"},
		"bios.getSettings":            {``, ``, `getSettings`, `{"Boot":true}`},
		"bios.applySettings":          {`[{"A":1}]`, `{"settings":{"A":1}}`, `applySettings[{"A":1}]`, `{"onReboot":true}`},
		"raid.applyLayout":            {`[{"volumes":[{"level":"1"}]}]`, `{"layout":{"volumes":[{"level":"1"}]}}`, `applyLayout[{"volumes":[{"level":"1"}]}]`, `{"volumes":[{"level":"1"}]}`},
		"raid.clear":                  {``, ``, `clear`, `{}`},
		"raid.getLayout":              {``, ``, `getLayout`, `{"volumes":null}`},
		"firmware.components":         {``, ``, `components`, `[{"id":"BIOS"}]`},
		"firmware.update":             {`["BIOS",{"url":"https://images.example/b"}]`, `{"component":"BIOS","image":{"url":"https://images.example/b"}}`, `update["BIOS",{"url":"https://images.example/b"}]`, `{"version":"2"}`},
		"runtime.traits":              {``, ``, `traits`, `["kvm"]`},
		"runtime.list":                {``, ``, `list`, `[{"id":"i1","state":"running"}]`},
		"runtime.apply":               {`[{"cpus":2}]`, `{"cpus":2}`, `apply[{"cpus":2}]`, `{"id":"i1","state":"running"}`},
		"runtime.reboot":              {`["i1"]`, `{"id":"i1"}`, `reboot["i1"]`, `{}`},
		"runtime.remove":              {`["i1"]`, `{"id":"i1"}`, `remove["i1"]`, `{}`},
		"runtime.console":             {`["i1"]`, `{"id":"i1"}`, `console["i1"]`, "stream"},
	}
	w, p, names := &whole{}, &spare{}, slices.Sorted(maps.Keys(reference))
	rich, poor := driverOf(t, w, names...), driverOf(t, p, names...)
	for kind := range reference {
		k, _ := LookupKind(kind)
		for _, op := range k.Operations {
			c, listed := all[kind+"."+op.Name]
			if !listed {
				t.Errorf("%s.%s is not tested", kind, op.Name)
			}
			for _, args := range []string{c.args, c.named} {
				w.got = ""
				call := Call{Kind: kind, Operation: op.Name, Config: address, Args: json.RawMessage(args)}
				out, err := invoked(t, rich, call, op.Stream)
				if got := strings.TrimSuffix(w.got, "null"); err != nil || got != c.got || c.result != "" && out != c.result {
					t.Errorf("%s %s: called %s, gave %s, %v; want %s and %s", call.Name(), args, got, out, err, c.got, c.result)
				}
				if _, err := invoked(t, poor, call, op.Stream); (err == nil) == op.Optional || err != nil && AsError(err).Code != CodeUnsupported {
					t.Errorf("%s of a driver without what may be lacking: %v", call.Name(), err)
				}
			}
		}
	}
}

// invoked makes a call; the result of a byte stream is "stream".
func invoked(t *testing.T, d *Driver, c Call, stream bool) (string, error) {
	t.Helper()
	ctx := NewContext(t.Context())
	if !stream {
		out, err := d.Invoke(ctx, c)
		return string(out), err
	}
	if _, err := d.Invoke(ctx, c); AsError(err).Code != CodeUnsupported {
		t.Errorf("%s gave a result instead of a byte stream: %v", c.Name(), err)
	}
	s, err := d.Stream(ctx, c)
	if err != nil {
		return "", err
	}
	return "stream", s.Close()
}
