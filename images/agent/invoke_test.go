package agent_test

import (
	"crypto/ed25519"
	"encoding/json"
	"testing"
	"time"

	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/agenttest"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// inspect is the payload of a driver.invoke for the attempt of a command.
func inspect(c *agentv1.Command, change func(*agentv1.DriverInvoke)) agentv1.DriverInvoke {
	in := agentv1.DriverInvoke{WorkflowID: c.WorkflowID, StepID: c.StepID, Attempt: c.Attempt,
		Args: agentv1.DriverInvokeArgs{Concern: "inspect", Operation: "inspect"}}
	if change != nil {
		change(&in)
	}
	return in
}

// invocation is a driver.invoke as the site would send it.
func invocation(site *agenttest.Site, key string, change func(*agentv1.DriverInvoke)) agentv1.Command {
	c := site.Command(key, agentv1.KindDriverInvoke, struct{}{})
	return withPayload(site, c, inspect(&c, change))
}

// withPayload is c with another payload and its digest.
func withPayload(site *agenttest.Site, c agentv1.Command, payload any) agentv1.Command {
	d := site.Command(c.Key, c.Kind, payload)
	c.Payload, c.PayloadSHA256 = d.Payload, d.PayloadSHA256
	return c
}

func TestABuiltInDriverIsInvoked(t *testing.T) {
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		c := invocation(site, "wf:1:profile-0#0", nil)
		site.Send(c)
		r := site.Result(c.Key)
		var out agentv1.DriverInvokeResult
		var inv agentv1.Inventory
		if err := json.Unmarshal(r.Result, &out); err != nil || json.Unmarshal(out.Result, &inv) != nil || r.State != "done" || len(inv.Disks) != 1 {
			t.Errorf("%+v: %v", r, err)
		}
	})
}

func TestCallsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*agentv1.DriverInvoke)
		reason string
	}{
		"another concern":     {func(d *agentv1.DriverInvoke) { d.Args.Concern = "power" }, "driver-not-found"},
		"another driver":      {func(d *agentv1.DriverInvoke) { d.Args.Driver = "acme" }, "driver-not-found"},
		"another operation":   {func(d *agentv1.DriverInvoke) { d.Args.Operation = "explode" }, "unsupported-operation"},
		"a configuration":     {func(d *agentv1.DriverInvoke) { d.Args.Config = json.RawMessage(`{"a":"secret://root/x"}`) }, "invalid-config"},
		"another workflow":    {func(d *agentv1.DriverInvoke) { d.WorkflowID = "wf-other" }, "command-not-ours"},
		"another attempt":     {func(d *agentv1.DriverInvoke) { d.Attempt = 7 }, "command-not-ours"},
		"meant for the site":  {func(d *agentv1.DriverInvoke) { d.TargetNodeID = "m-1" }, "command-not-ours"},
		"named as it is":      {func(d *agentv1.DriverInvoke) { d.Args.Driver = "ramdisk" }, ""},
		"empty configuration": {func(d *agentv1.DriverInvoke) { d.Args.Config = json.RawMessage(`{}`) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			world(t, nil, func(t *testing.T, site *agenttest.Site, _ *agenttest.Sim) {
				cmd := invocation(site, "wf:1:profile-0#0", c.change)
				site.Send(cmd)
				r := site.Result(cmd.Key)
				if (c.reason == "") != (r.State == "done") || r.Error != nil && r.Error.Reason != c.reason {
					t.Errorf("%+v %+v, want %q", r, r.Error, c.reason)
				}
			})
		})
	}
	several := map[string]agent.Operations{"one": {"x.y": nil}, "two": {"x.z": nil}}
	_, err := agent.Invoke(several)(t.Context(), agentv1.Command{Payload: json.RawMessage(`{"workflowId":"","stepId":"","attempt":0,"args":{"concern":"x","operation":"y"}}`)}, nil)
	if err == nil || err.Error() == "" {
		t.Errorf("several drivers of a concern: %v", err)
	}
}

// diskCalls are calls of image-stream, as a hardware profile's step would send them.
func diskCalls() map[string]func(*agentv1.DriverInvoke) {
	call := func(operation, args string) func(*agentv1.DriverInvoke) {
		return func(d *agentv1.DriverInvoke) {
			d.Args = agentv1.DriverInvokeArgs{Concern: "deploy", Operation: operation, Args: json.RawMessage(args), Driver: "image-stream"}
		}
	}
	return map[string]func(*agentv1.DriverInvoke){
		"inspect":  nil,
		"deploy":   call("deploy", `[{"machine":"m-1","image":"/images/i/index","sha256":"aa","disk":{"serial":"S1"},"rawBytes":4096}]`),
		"tearDown": call("tearDown", `[{"machine":"m-1","wipe":"secure","disks":[{"serial":"S1"}]}]`),
	}
}

func TestImagesAreWrittenThroughADriver(t *testing.T) {
	for name, change := range diskCalls() {
		world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
			c := invocation(site, "wf:1:before-0#0", change)
			site.Send(c)
			r := site.Result(c.Key)
			var out agentv1.DriverInvokeResult
			if err := json.Unmarshal(r.Result, &out); err != nil || r.State != "done" || len(out.Result) < 2 {
				t.Errorf("%s: %+v: %v", name, r, err)
			}
		})
	}
}

// alone sends one order and then an inventory, whose answer shows that the order was judged before it; the order must not
// have run.
func alone(t *testing.T, send func(site *agenttest.Site) (key string)) {
	t.Helper()
	world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
		key := send(site)
		after := site.Command("wf:1:after#0", agentv1.KindInventory, struct{}{})
		site.Send(after)
		site.Result(after.Key)
		if n := sim.Runs(key); n != 0 {
			t.Errorf("it ran %d times", n)
		}
	})
}

func TestAnUnsignedDriverCallIsRefused(t *testing.T) {
	for name, change := range diskCalls() {
		t.Run(name, func(t *testing.T) {
			alone(t, func(site *agenttest.Site) string {
				s := site.Sign(invocation(site, "wf:1:profile-0#0", change))
				site.SendRaw(agentv1.SignedCommand{Command: s.Command})
				return "wf:1:profile-0#0"
			})
		})
	}
}

func TestAForeignDriverCallIsRefused(t *testing.T) {
	for name, forge := range map[string]func(*agenttest.Site, agentv1.Command) agentv1.SignedCommand{
		"another key": func(site *agenttest.Site, c agentv1.Command) agentv1.SignedCommand {
			s := site.Sign(c)
			s.Signature = ed25519.Sign(ed25519.NewKeyFromSeed(make([]byte, 32)), append([]byte(agentv1.SigningContext), s.Command...))
			return s
		},
		"another machine": func(site *agenttest.Site, c agentv1.Command) agentv1.SignedCommand {
			c.MachineID = "m-other"
			return site.Sign(c)
		},
		"another session": func(site *agenttest.Site, c agentv1.Command) agentv1.SignedCommand {
			c.SessionID = "ses-other"
			return site.Sign(c)
		},
		"another workflow": func(site *agenttest.Site, c agentv1.Command) agentv1.SignedCommand {
			c.WorkflowID = "wf-other"
			return site.Sign(c)
		},
	} {
		for call, change := range diskCalls() {
			t.Run(name+" "+call, func(t *testing.T) {
				alone(t, func(site *agenttest.Site) string {
					site.SendRaw(forge(site, invocation(site, "wf:1:profile-0#0", change)))
					return "wf:1:profile-0#0"
				})
			})
		}
	}
}

func TestAReplayedDriverCallDoesNotRunAgain(t *testing.T) {
	for name, change := range diskCalls() {
		world(t, nil, func(t *testing.T, site *agenttest.Site, sim *agenttest.Sim) {
			c := invocation(site, "wf:1:profile-0#0", change)
			site.Send(c)
			site.Result(c.Key)
			site.Send(c)
			site.Await(func(h agenttest.Heard) bool { return len(h.Results) == 2 })
			if n := sim.Runs(c.Key); n != 1 {
				t.Errorf("%s: it ran %d times", name, n)
			}
		})
	}
}

func TestAnExpiredDriverCallIsRefused(t *testing.T) {
	for name, change := range diskCalls() {
		t.Run(name, func(t *testing.T) {
			alone(t, func(site *agenttest.Site) string {
				c := invocation(site, "wf:1:profile-0#0", change)
				c.NotAfter = c.NotAfter.Add(-1000 * time.Hour)
				site.Send(c)
				return c.Key
			})
		})
	}
}
