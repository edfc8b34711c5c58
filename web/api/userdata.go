package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// userData names the member that often holds passwords: in a deploy's input, and in the seed of a step that deploys.
var userData = []string{"userData", "user-data"}

// discreet hides the user-data of deploys from those who may not deploy: they get its size. A hash of it would let them try passwords.
func (c *Call) discreet(raw json.RawMessage) json.RawMessage {
	holds := slices.ContainsFunc(userData, func(name string) bool { return bytes.Contains(raw, []byte(name)) })
	if !holds || c.Who.Can(app.PermMachinesWrite) {
		return raw
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil // it cannot be told what it holds
	}
	withhold(v)
	out, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return out
}

// withhold replaces every user-data in a decoded value.
func withhold(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if s, ok := member.(string); ok && slices.Contains(userData, name) {
				v[name] = fmt.Sprintf("withheld: %d bytes", len(s))
				continue
			}
			withhold(member)
		}
	case []any:
		for _, member := range v {
			withhold(member)
		}
	}
}

// workflow shows a workflow to the one who asks.
func (c *Call) workflow(w *workflow.Workflow) *workflow.Workflow {
	out := *w
	out.Input, out.Data, out.Steps = c.discreet(w.Input), c.discreet(w.Data), slices.Clone(w.Steps)
	for i := range out.Steps {
		s := &out.Steps[i]
		s.Payload, s.Result = c.discreet(s.Payload), c.discreet(s.Result)
	}
	return &out
}

// profile shows a hardware profile to the one who asks.
func (c *Call) profile(p app.Profile) app.Profile {
	for _, steps := range []*[]app.ProfileStep{&p.Steps.Commission, &p.Steps.BeforeWrite, &p.Steps.AfterWrite} {
		*steps = slices.Clone(*steps)
		for i := range *steps {
			(*steps)[i].With = c.discreet((*steps)[i].With)
		}
	}
	return p
}
