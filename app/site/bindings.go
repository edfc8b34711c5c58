package site

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/app/metal/rotate"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/workflow"
)

// VaultFile is [vault] of config.toml: the server that vault:// references are read from.
type VaultFile struct {
	Address      string       `toml:"address"` // https://HOST:PORT
	CAFile       string       `toml:"ca_file"`
	Namespace    string       `toml:"namespace"`
	TokenFile    string       `toml:"token_file"` // or AppRole:
	RoleID       string       `toml:"role_id"`
	SecretIDFile string       `toml:"secret_id_file"`
	AuthMount    string       `toml:"auth_mount"`
	Timeout      tomlDuration `toml:"timeout"`
}

// tomlDuration reads "10s".
type tomlDuration time.Duration

// UnmarshalText reads Go's form of a duration.
func (d *tomlDuration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = tomlDuration(v)
	return err
}

// open makes the client; nil when the section is empty.
func (f *VaultFile) open() (*secret.KV, error) {
	if *f == (VaultFile{}) {
		return nil, nil
	}
	return secret.NewKV(secret.KVConfig{Address: f.Address, CAFile: f.CAFile, Namespace: f.Namespace, TokenFile: f.TokenFile, RoleID: f.RoleID,
		SecretIDFile: f.SecretIDFile, AuthMount: f.AuthMount, Timeout: time.Duration(f.Timeout)})
}

func (f *VaultFile) validate() error {
	_, err := f.open()
	return err
}

// openVault opens the sealed secrets, and audits each that is opened.
func (s *Site) openVault(keys string) error {
	kv, err := s.cfg.File.Vault.open()
	if err != nil {
		return err
	}
	s.vault, err = secret.Open(secret.Config{KeyFile: filepath.Join(keys, "secrets.key"), Store: s.db, KV: kv, Audit: s.fetched})
	return err
}

// fetched puts the opening of a secret into the audit trail.
func (s *Site) fetched(f secret.Fetch) {
	e := app.Event{Time: now().UTC(), Kind: "secret.fetched", Level: "info", MachineID: f.Use.MachineID, Workflow: f.Use.WorkflowID, Actor: f.Use.Actor,
		Message: "the secret " + f.Ref + " was opened"}
	if e.Actor == "" {
		e.Actor = "system"
	}
	if f.Use.StepID != "" {
		e.Message += " for the step " + f.Use.StepID
	}
	if f.Err != nil {
		e.Kind, e.Level, e.Message = "secret.refused", "warn", "the secret "+f.Ref+" could not be opened: "+f.Err.Error()
	}
	s.bus.Emit(e)
}

// wireDrivers makes the registry, with the versions that were picked, and what keeps machines bound to it.
func (s *Site) wireDrivers(ctx context.Context) error {
	s.registry = drivers.New(drivers.Config{Secrets: s.vault, Profiles: s.db, Logger: s.log, BMCDrivers: s.cfg.File.BMCDrivers, Journal: s.db, Settings: s.db,
		Changed: func() { s.bindings.Changed() },
		Record: func(e app.Event) {
			if e.Kind != drivers.CommandPower && e.Kind != drivers.CommandBoot { // those are recorded with their times by the verbs' hardware
				s.emit(e)
			}
		}})
	s.bindings = drivers.NewKeeper(drivers.KeeperConfig{Registry: s.registry, Machines: s.db, Record: s.emit, Log: s.log})
	return s.registry.Restore(ctx)
}

// bind makes the bindings of a machine that is being enrolled. What is doubtful goes into its audit trail.
func (s *Site) bind(ctx context.Context, m *app.Machine, own map[string]app.Binding, force bool) error {
	warnings, err := s.bindings.Bind(ctx, m, own, force)
	if err == nil {
		s.registry.RememberMachine(ctx, m) // its drivers may not have been asked
	}
	for _, w := range warnings {
		s.emit(app.Event{Time: now().UTC(), Kind: "machine.bound", Level: "warn", MachineID: m.ID, Actor: "system", Message: w})
	}
	return err
}

// query asks a machine's BMC by an operation that only looks.
func (s *Site) query(ctx context.Context, m *app.Machine, operation string) (json.RawMessage, error) {
	return s.registry.For(m, drivers.Options{}).Query(ctx, operation)
}

// powerOf asks a machine's BMC for its power.
func (s *Site) powerOf(ctx context.Context, machineID string) (app.Power, error) {
	m, err := s.db.Machine(ctx, machineID)
	if err != nil {
		return app.PowerUnknown, err
	}
	return s.registry.For(m, drivers.Options{}).Hardware().Power(ctx)
}

// rotations makes the verb that changes BMC passwords.
func (s *Site) rotations() *rotate.Verbs {
	return rotate.New(s.ports, rotate.Config{
		Open: func(ctx context.Context, c workflow.Command, ref string) (enroll.Credentials, error) {
			v, err := s.vault.Resolve(secret.For(ctx, secret.Use{MachineID: c.MachineID, WorkflowID: c.WorkflowID, StepID: c.StepID}), ref)
			if err != nil {
				return enroll.Credentials{}, err
			}
			user, _ := v.Field("username")
			password, _ := v.Field("password")
			return enroll.Credentials{Username: user, Password: password}, nil
		},
		Seal: s.seal, Forget: s.unseal, Ref: secret.Ref,
		Login: func(ctx context.Context, m *app.Machine, c enroll.Credentials) error {
			login := secret.Login(c.Username, c.Password)
			_, err := s.registry.Probe(ctx, drivers.ProbeInput{BMC: *m.BMC, Login: &login})
			return err
		},
	})
}

// approvalHealth tells that batches wait for a second operator: nobody else tells them.
func (s *Site) approvalHealth(ctx context.Context) ([]health.Warning, error) {
	all, err := s.db.ListApprovals(ctx)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, a := range all {
		if a.State == app.ApprovalPending && now().Before(a.Expires) {
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return []health.Warning{{Code: "approvals-pending", Level: "warn", Message: fmt.Sprintf("%d batches wait for a second operator", n), WayOut: "look at them on the Approvals page, and approve or deny each"}}, nil
}

// maxListed is how many machines one warning names.
const maxListed = 5

// bindingHealth lists machines whose bindings do not resolve any more, or fail their driver's own check, and passwords that
// are not settled.
func (s *Site) bindingHealth(ctx context.Context) ([]health.Warning, error) {
	var out []health.Warning
	var live []string
	for i, p := range s.bindings.Problems() {
		switch {
		case p.Live:
			live = append(live, fmt.Sprintf("%s (%s)", p.Machine, p.Error.Message))
		case i < maxListed:
			out = append(out, health.Warning{Code: "binding-broken", Level: "error", Message: fmt.Sprintf("the drivers of %s cannot be bound any more, so it keeps the old ones: %s", p.Machine, p.Error.Message),
				WayOut: "correct its hardware profile, its pool or its own drivers, or bring the plugin back"})
		case i == maxListed:
			out = append(out, health.Warning{Code: "binding-broken", Level: "error", Message: "and there are more machines whose drivers cannot be bound", WayOut: "correct the first ones: they often have one cause"})
		}
	}
	if len(live) > 0 {
		more := ""
		if len(live) > maxListed {
			more = fmt.Sprintf(" and %d more", len(live)-maxListed)
		}
		out = append(out, health.Warning{Code: "driver-check-failed", Level: "warn", Message: "the drivers' own checks fail for " + strings.Join(live[:min(len(live), maxListed)], ", ") + more,
			WayOut: "check address and credentials of their BMCs, or the driver's configuration"})
	}
	out, err := s.lacking(ctx, out)
	if err != nil {
		return out, err
	}
	return s.unsettled(ctx, out)
}

// lacking adds, by driver, the machines that are bound to one that the site does not have now.
func (s *Site) lacking(ctx context.Context, out []health.Warning) ([]health.Warning, error) {
	lacks, err := s.bindings.Lacks(ctx)
	if err != nil {
		return out, err
	}
	machines, first := map[string][]string{}, map[string]*app.Error{}
	for _, p := range lacks {
		if first[p.Driver] == nil {
			first[p.Driver] = p.Error
		}
		if !slices.Contains(machines[p.Driver], p.Machine) {
			machines[p.Driver] = append(machines[p.Driver], p.Machine)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		all, more := machines[id], ""
		if len(all) > maxListed {
			more = fmt.Sprintf(" and %d more", len(all)-maxListed)
		}
		out = append(out, health.Warning{Code: "driver-not-here", Level: "error", WayOut: first[id].WayOut,
			Message: fmt.Sprintf("nothing can be done through the driver %s to %s%s: %s", id, strings.Join(all[:min(len(all), maxListed)], ", "), more, first[id].Message)})
	}
	return out, nil
}

// unsettled adds the machines for which two passwords are kept and that no rotation is under way on.
func (s *Site) unsettled(ctx context.Context, out []health.Warning) ([]health.Warning, error) {
	all, err := s.vault.List(ctx)
	if err != nil {
		return out, err
	}
	for _, x := range all {
		id, ok := rotate.Unsettled(x.Name)
		if !ok {
			continue
		}
		m, err := s.db.Machine(ctx, id)
		if err == nil && m.WorkflowID == "" {
			out = append(out, health.Warning{Code: "credential-unsettled", Level: "error", Message: "it is not known which of two passwords the BMC of " + m.Name + " takes; both are kept",
				WayOut: "rotate its credential again once the BMC answers"})
		}
	}
	return out, nil
}

// rotationUnsettled reports that two passwords are kept for a machine's BMC.
func (s *Site) rotationUnsettled(ctx context.Context, machineID string) (bool, error) {
	_, err := s.vault.Get(ctx, rotate.Pending(machineID))
	if app.CodeOf(err) == app.NotFound {
		return false, nil
	}
	return err == nil, err
}

// advertised keeps the labels of the drivers that a machine's ramdisk carries.
func (s *Site) advertised(ctx context.Context, machineID string, labels map[string]string) {
	_, err := s.db.UpdateMachine(ctx, machineID, func(m *app.Machine) error {
		m.Ramdisk = labels
		s.registry.Label(m)
		return nil
	})
	if err != nil {
		s.log.Warn("the labels of a ramdisk were not kept", "machine", machineID, "error", err)
	}
}
