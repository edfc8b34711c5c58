package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Operations are those of one built-in driver, by kind and name: "inspect.inspect". Their arguments come as the payload.
type Operations map[string]Handler

// Invoke makes the handler of driver.invoke over built-in drivers, by id. They take no configuration, so no command of this
// kind names a secret, and the agent fetches none.
func Invoke(drivers map[string]Operations) Handler {
	return func(ctx context.Context, c agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		var in agentv1.DriverInvoke
		d := json.NewDecoder(bytes.NewReader(c.Payload))
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			return nil, app.Errorf(app.InvalidInput, "invalid-payload", "the call of a driver cannot be read: %w", err)
		}
		if in.WorkflowID != c.WorkflowID || in.StepID != c.StepID || in.Attempt != c.Attempt || in.TargetNodeID != "" {
			return nil, app.Errorf(app.Forbidden, "command-not-ours", "the call of a driver is of another attempt than its command")
		}
		run, err := pickOperation(drivers, in.Args)
		if err != nil {
			return nil, err
		}
		c.Payload = in.Args.Args
		result, err := run(ctx, c, progress)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("encoding the result of %s.%s: %w", in.Args.Concern, in.Args.Operation, err)
		}
		return agentv1.DriverInvokeResult{Result: raw}, nil
	}
}

// pickOperation finds the one driver that has the concern, or the one that is named, and its operation.
func pickOperation(drivers map[string]Operations, a agentv1.DriverInvokeArgs) (Handler, error) {
	var ids []string
	for id, ops := range drivers {
		serves := false
		for name := range ops {
			serves = serves || strings.HasPrefix(name, a.Concern+".")
		}
		if serves && (a.Driver == "" || a.Driver == id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	switch {
	case len(ids) == 0:
		return nil, app.Errorf(app.Unsupported, "driver-not-found", "no driver in the ramdisk serves %.80q", a.Concern).Do("let the step run on the site")
	case len(ids) > 1:
		return nil, app.Errorf(app.InvalidConfig, "ambiguous-driver", "several drivers in the ramdisk serve %s: %s", a.Concern, strings.Join(ids, ", ")).Do("bind one of them")
	}
	if config := bytes.TrimSpace(a.Config); len(config) > 0 && string(config) != "{}" && string(config) != "null" {
		return nil, app.Errorf(app.InvalidConfig, "invalid-config", "the driver %s in the ramdisk takes no configuration", ids[0]).Do("leave it out")
	}
	run := drivers[ids[0]][a.Concern+"."+a.Operation]
	if run == nil {
		return nil, app.Errorf(app.Unsupported, "unsupported-operation", "the driver %s in the ramdisk does not serve %.80q", ids[0], a.Concern+"."+a.Operation)
	}
	return run, nil
}
