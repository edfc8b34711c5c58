package bmctest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/plugins/driver"
)

// BMC is one BMC as a driver under test reaches it.
type BMC struct {
	Driver  *driver.Driver
	Config  json.RawMessage // valid, with a right pin where the driver takes one
	Secrets driver.SecretMap
	MAC     string // a MAC that inspect must find; "" when the driver finds none
	UUID    string // that inspect must give; "" when unknown
	NoSoft  bool   // the machine has no operating system that shuts down
	// Lacks are the boot devices that this machine has not, which must be refused as unsupported.
	Lacks []string
	// Images are the addresses of two images that the BMC can fetch, for drivers of the kind virtual-media.
	Images [2]string
}

// Conformance runs what every driver of the kinds power, management, inspect and virtual-media must do, each case on a fresh BMC whose
// machine is on.
func Conformance(t *testing.T, open func(t *testing.T) BMC) {
	for name, test := range map[string]func(*testing.T, BMC){
		"power follows":         powerFollows,
		"power off twice":       powerOffTwice,
		"power soft":            powerSoft,
		"arguments":             bothArgumentForms,
		"bad arguments":         badArguments,
		"boot devices":          bootDevices,
		"inspect":               inspects,
		"probe":                 probes,
		"virtual media":         virtualMedia,
		"bad images":            badImages,
		"wrong password":        wrongPassword,
		"no password":           noPassword,
		"cancelled":             cancelled,
		"unknown operation":     unknownOperation,
		"unknown configuration": unknownConfig,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func (b BMC) invoke(ctx context.Context, op string, args string) (json.RawMessage, error) {
	kind, name, _ := strings.Cut(op, ".")
	c := driver.NewContext(ctx)
	c.Secrets = b.Secrets
	return b.Driver.Invoke(c, driver.Call{Kind: kind, Operation: name, Config: b.Config, Args: json.RawMessage(args)})
}

func (b BMC) must(t *testing.T, op, args string) json.RawMessage {
	t.Helper()
	r, err := b.invoke(t.Context(), op, args)
	if err != nil {
		t.Fatalf("%s%s: %v", op, args, err)
	}
	return r
}

// refuses checks the code of a failure.
func (b BMC) refuses(t *testing.T, op, args string, codes ...string) {
	t.Helper()
	r, err := b.invoke(t.Context(), op, args)
	e := driver.AsError(err)
	if e == nil {
		t.Fatalf("%s%s gave %s, want an error of %v", op, args, r, codes)
	}
	if !slices.Contains(codes, e.Code) {
		t.Fatalf("%s%s: code %q (%s), want one of %v", op, args, e.Code, e.Message, codes)
	}
}

func (b BMC) wantPower(t *testing.T, want string) {
	t.Helper()
	var r driver.PowerReading
	if err := json.Unmarshal(b.must(t, "power.getPower", "[]"), &r); err != nil || r.Power != want {
		t.Fatalf("power is %+v (%v), want %q", r, err, want)
	}
}

func powerFollows(t *testing.T, b BMC) {
	b.wantPower(t, "on")
	for _, step := range [][2]string{{"off", "off"}, {"on", "on"}, {"cycle", "on"}, {"reset", "on"}, {"on", "on"}, {"off", "off"}, {"cycle", "on"}} {
		b.must(t, "power.setPower", `["`+step[0]+`"]`)
		b.wantPower(t, step[1])
	}
}

func powerOffTwice(t *testing.T, b BMC) {
	b.must(t, "power.setPower", `["off"]`)
	b.must(t, "power.setPower", `["off"]`)
	b.must(t, "power.setPower", `["soft"]`) // there is nothing to shut down: done
	b.wantPower(t, "off")
}

func powerSoft(t *testing.T, b BMC) {
	if b.NoSoft {
		t.Log("left out: this machine runs nothing that shuts down")
		return
	}
	b.must(t, "power.setPower", `["shutdown"]`)
	b.wantPower(t, "off")
}

func bothArgumentForms(t *testing.T, b BMC) {
	b.must(t, "power.setPower", `{"action":"on"}`)
	b.must(t, "management.setBootDevice", `["pxe",{"persistent":false}]`)
	b.must(t, "management.setBootDevice", `{"device":"hdd","persistent":false}`)
	b.must(t, "management.setBootDevice", `{"device":"pxe","options":{"persistent":false}}`)
	b.must(t, "management.setBootDevice", `"pxe"`)
	b.wantPower(t, "on")
}

func badArguments(t *testing.T, b BMC) {
	b.refuses(t, "power.setPower", `["explode"]`, driver.CodeInvalidArgs)
	b.refuses(t, "power.setPower", `[]`, driver.CodeInvalidArgs)
	b.refuses(t, "power.setPower", `["on","off"]`, driver.CodeInvalidArgs)
	b.refuses(t, "power.setPower", `[7]`, driver.CodeInvalidArgs)
	b.refuses(t, "management.setBootDevice", `["moon"]`, driver.CodeInvalidArgs)
	b.refuses(t, "management.setBootDevice", `["pxe",{"persistant":true}]`, driver.CodeInvalidArgs)
	b.refuses(t, "management.setBootDevice", `{"device":"pxe","for":"ever"}`, driver.CodeInvalidArgs)
	b.refuses(t, "power.getPower", `[1`, driver.CodeInvalidArgs)
}

func bootDevices(t *testing.T, b BMC) {
	for _, d := range []string{"pxe", "disk", "cdrom", "bios", "hdd", "cd"} {
		if slices.Contains(b.Lacks, d) {
			b.refuses(t, "management.setBootDevice", `["`+d+`",{}]`, driver.CodeUnsupported)
			continue
		}
		b.must(t, "management.setBootDevice", `["`+d+`",{}]`)
	}
	b.must(t, "management.setBootDevice", `["pxe",{"persistent":true}]`)
	b.must(t, "management.setBootDevice", `["pxe",{"uefi":true}]`)
}

func inspects(t *testing.T, b BMC) {
	var inv driver.Inventory
	raw := b.must(t, "inspect.inspect", "[]")
	if err := json.Unmarshal(raw, &inv); err != nil {
		t.Fatalf("inspect gave %s: %v", raw, err)
	}
	for _, member := range []string{`"manufacturer"`, `"model"`, `"serialNumber"`, `"power"`, `"macs":[`, `"ipAddresses":[`} {
		if !strings.Contains(string(raw), member) {
			t.Errorf("inspect gave no %s: %s", member, raw)
		}
	}
	if inv.Power != driver.PowerOn {
		t.Errorf("inspect says the power is %q", inv.Power)
	}
	if b.MAC != "" && !slices.Contains(inv.MACs, b.MAC) {
		t.Errorf("inspect found %v, not %s", inv.MACs, b.MAC)
	}
	if b.UUID != "" && inv.ProductUUID != b.UUID {
		t.Errorf("inspect says UUID %q, want %q", inv.ProductUUID, b.UUID)
	}
}

// probes checks the card of drivers that make one, and that probing changes nothing.
func probes(t *testing.T, b BMC) {
	raw, err := b.invoke(t.Context(), "management.probe", "[]")
	if e := driver.AsError(err); e != nil && e.Code == driver.CodeUnsupported {
		t.Log("left out: this driver has no probe")
		return
	}
	var card driver.Card
	if err != nil || json.Unmarshal(raw, &card) != nil {
		t.Fatalf("probe gave %s, %v", raw, err)
	}
	if card.Power.Power != driver.PowerOn || !slices.Contains(card.PowerActions, "off") || card.Sessions.Auth == "" {
		t.Errorf("the card says %s", raw)
	}
	if b.MAC != "" && !slices.Contains(card.MACs, b.MAC) || b.UUID != "" && card.ProductUUID != b.UUID {
		t.Errorf("the card has another identity: %s", raw)
	}
	b.wantPower(t, "on")
}

func wrongPassword(t *testing.T, b BMC) {
	b.Secrets = driver.SecretMap{"username": b.Secrets["username"], "password": "wrong"}
	b.refuses(t, "power.getPower", "[]", driver.CodeAuthFailed)
}

func noPassword(t *testing.T, b BMC) {
	b.Secrets = driver.SecretMap{"username": "admin"}
	b.refuses(t, "power.getPower", "[]", driver.CodeNoCredentials)
}

func cancelled(t *testing.T, b BMC) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.invoke(ctx, "power.setPower", `["off"]`)
	if e := driver.AsError(err); e == nil || e.Code != driver.CodeCancelled {
		t.Fatalf("a cancelled call gave %v", err)
	}
	b.wantPower(t, "on")
}

func unknownOperation(t *testing.T, b BMC) {
	b.refuses(t, "power.setFire", "[]", driver.CodeUnsupported)
	b.refuses(t, "nothing.at-all", "[]", driver.CodeUnsupported)
}

func unknownConfig(t *testing.T, b BMC) {
	var cfg map[string]any
	if err := json.Unmarshal(b.Config, &cfg); err != nil {
		t.Fatal(err)
	}
	cfg["adress"] = "192.0.2.1"
	b.Config, _ = json.Marshal(cfg)
	b.refuses(t, "power.getPower", "[]", driver.CodeInvalidConfig)
}
