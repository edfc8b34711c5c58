package disk

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// deployOf is the call of deploy.deploy that orders what a write does.
func deployOf(t *testing.T, o agentv1.Write, seed map[string][]byte) agentv1.Command {
	t.Helper()
	raw, err := json.Marshal([]agentv1.DeploySpec{{Machine: "m-1", Image: o.IndexURL, SHA256: o.IndexSHA256, Disk: o.Disk, RawBytes: o.RawBytes, SectorSize: o.SectorSize,
		FSUUIDs: o.FSUUIDs, WipeOthers: o.WipeOthers, Seed: seed}})
	if err != nil {
		t.Fatal(err)
	}
	return agentv1.Command{Kind: agentv1.KindDriverInvoke, MachineID: "m-1", Payload: raw}
}

// A driver's deploy leaves the disk that agent.write leaves, and says how far it is as that does.
func TestADriversDeployIsTheWrite(t *testing.T) {
	s := newSite(t, testRaw(9, 3<<20))
	d := sda(8 << 20)
	r := newRig(t, s, d)
	var phases []string
	cmd := deployOf(t, s.order(d), nil)
	out, err := r.Deploy(context.Background(), cmd, func(p agentv1.ProgressReport) { phases = append(phases, p.Phase) })
	if err != nil {
		t.Fatal(err)
	}
	checkWritten(t, r.content(t, "sda"), s.raw, 512)
	if got := out.(agentv1.DeployResult); got.Bytes < int64(len(s.raw)) || got.SHA256 != s.digest {
		t.Errorf("result %+v", got)
	}
	if len(phases) == 0 || phases[len(phases)-1] != "verify" {
		t.Errorf("phases %q", phases)
	}
	cmd.Payload = bytes.Trim(cmd.Payload, "[]") // the argument alone
	if _, err := r.Deploy(context.Background(), cmd, quiet); err != nil {
		t.Errorf("an object as the argument: %v", err)
	}
}

// With first-boot data the disk is configured as agent.configure does it.
func TestADriversDeployPlantsItsSeed(t *testing.T) {
	whole := installed(t, "label: gpt\nsize=8MiB, type=L\n", 16<<20)
	s := newSite(t, whole.content(t, "sda")[:16<<20])
	d := sda(80 << 20)
	r := newRig(t, s, d)
	if _, err := r.Deploy(context.Background(), deployOf(t, s.order(d), seedFiles), quiet); err != nil {
		t.Fatal(err)
	}
	parts := r.layout(t).Partitions
	r.checkSeed(t, parts[len(parts)-1])
}

// An order that is another machine's, or that is not understood whole, touches nothing.
func TestDeploysThatCannotBe(t *testing.T) {
	s := newSite(t, testRaw(9, 1<<20))
	d := sda(8 << 20)
	for name, c := range map[string]struct {
		change func(*agentv1.Command)
		want   string
	}{
		"another machine's": {func(c *agentv1.Command) { c.MachineID = "m-2" }, "command-not-ours"},
		"an unknown member": {func(c *agentv1.Command) { c.Payload = json.RawMessage(`[{"machine":"m-1","dsik":{}}]`) }, "invalid-args"},
		"no argument":       {func(c *agentv1.Command) { c.Payload = json.RawMessage(`[]`) }, "invalid-args"},
		"two arguments":     {func(c *agentv1.Command) { c.Payload = json.RawMessage(`[{"machine":"m-1"},{}]`) }, "invalid-args"},
		"nothing":           {func(c *agentv1.Command) { c.Payload = nil }, "invalid-args"},
		"no disk": {func(c *agentv1.Command) {
			c.Payload = json.RawMessage(`{"machine":"m-1","image":"/images/img-1/index"}`)
		}, "disk-not-named"},
		"no object": {func(c *agentv1.Command) { c.Payload = json.RawMessage(`"sda"`) }, "invalid-args"},
	} {
		r := newRig(t, s, d)
		cmd := deployOf(t, s.order(d), nil)
		c.change(&cmd)
		if _, err := r.Deploy(context.Background(), cmd, quiet); reason(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		r.untouched(t, "sda")
	}
}
