package drivers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// The commands that operations on BMCs are sent under. Each allows a fixed set of operations and no other.
const (
	CommandQuery    = "bmc.query"
	CommandPower    = "bmc.power"
	CommandBoot     = "bmc.boot"
	CommandRotate   = "bmc.rotate"
	CommandFirmware = "bmc.firmware"
	CommandConfig   = "bmc.config"
)

var allowed = map[string][]string{
	CommandQuery:    {"power.getPower", "inspect.inspect", "bios.getSettings", "firmware.components", "raid.getLayout", "management.getBootOrder"},
	CommandPower:    {"power.setPower"},
	CommandBoot:     {"management.setBootDevice", "management.setBootOrder", "virtual-media.insert", "virtual-media.eject"},
	CommandRotate:   {"management.rotateCredential"},
	CommandFirmware: {"firmware.update"},
	CommandConfig:   {"bios.applySettings", "raid.applyLayout", "raid.clear"},
}

// Queries are the operations that only look, which anybody who may see machines' hardware may ask for.
func Queries() []string { return slices.Clone(allowed[CommandQuery]) }

// journalTime bounds the writing down of an operation's end, which must not be lost with the call's own context.
const journalTime = 10 * time.Second

// operate sends one operation to the machine's BMC, under a command that allows it, and journals it. The journal row's id
// is the idempotency key: an attempt that is delivered again finds the row of its first delivery.
func (h *Handle) operate(ctx context.Context, command, kind, operation string, args json.RawMessage, secrets driver.SecretMap) (json.RawMessage, error) {
	name := kind + "." + operation
	if !slices.Contains(allowed[command], name) {
		return nil, app.Errorf(app.Unsupported, "operation-not-allowed", "%s is no operation of %s", name, command)
	}
	b, err := h.bind(ctx, kind)
	if err != nil {
		return nil, Error(err)
	}
	for k, v := range secrets {
		b.secrets[k] = v
	}
	o := h.o
	row := &app.BMCOperation{MachineID: h.m.ID, Command: command, Operation: name, Driver: b.driver.ID(), Args: args, Attempt: o.Key, Started: h.r.cfg.Now().UTC()}
	if h.r.cfg.Journal != nil {
		repeat := repeatOf(row)
		row.Args = hideKeys(args)
		if err := h.r.cfg.Journal.BeginBMCOperation(ctx, row, repeat); err != nil {
			return nil, fmt.Errorf("journaling %s: %w", name, err)
		}
		o.Key = strconv.FormatInt(row.ID, 10)
	}
	out, err := h.r.invoke(ctx, b, driver.Call{Kind: kind, Operation: operation, Config: b.config, Args: args}, o)
	h.r.ended(ctx, h.m, row, err)
	return out, err
}

// ended journals how an operation went, and puts a change on the machine's timeline.
func (r *Registry) ended(ctx context.Context, m *app.Machine, row *app.BMCOperation, err error) {
	row.Ended = r.cfg.Now().UTC()
	level, said := "info", row.Operation+" by "+row.Driver+": done"
	if err != nil {
		row.Error, level, said = err.Error(), "warn", row.Operation+" by "+row.Driver+": "+err.Error()
		if e, ok := app.AsError(err); ok {
			row.Reason = e.Reason
		}
	}
	if r.cfg.Journal != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTime)
		defer cancel()
		if err := r.cfg.Journal.EndBMCOperation(ctx, row); err != nil {
			r.log.Error("the end of an operation on a BMC was not written down", "machine", m.ID, "operation", row.Operation, "error", err)
		}
	}
	if r.cfg.Record != nil && row.Command != CommandQuery {
		workflow, _ := attemptOf(row.Attempt)
		r.cfg.Record(app.Event{Time: row.Ended, Kind: row.Command, Level: level, MachineID: m.ID, Workflow: workflow, Actor: "system", Message: said, Data: hideKeys(row.Args)})
	}
}

// repeatOf names what makes two deliveries the same: the attempt, the operation and its arguments. Looking, and what is no
// part of an attempt, never repeats.
func repeatOf(row *app.BMCOperation) string {
	if row.Attempt == "" || row.Command == CommandQuery {
		return ""
	}
	sum := sha256.Sum256(row.Args)
	return row.Attempt + " " + row.Operation + " " + hex.EncodeToString(sum[:8])
}
