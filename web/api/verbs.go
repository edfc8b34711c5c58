package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/better-compute/bcd/app"
)

// Batch is a verb on many machines: those of ids, or those that match filter.
type Batch[O any] struct {
	IDs     []string      `json:"ids,omitempty"`
	Filter  *TargetFilter `json:"filter,omitempty"`
	Options O             `json:"options,omitempty"`
	// Confirm is the number of machines, typed by the only operator of a site for what cannot be taken back.
	Confirm int `json:"confirm,omitempty"`
}

// TargetFilter selects machines for a batch. At least one member must be set.
type TargetFilter struct {
	Text   string            `json:"text,omitempty"`
	States []app.State       `json:"states,omitempty"`
	Pool   string            `json:"pool,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // value "*" matches any
	Count  int               `json:"count,omitempty"`  // any so many of those that match, in the order of their names; fewer are refused
}

// VerbResults says what became of a batch, in the order of the machines. With Approval nothing was done yet: the batch waits
// for a second operator.
type VerbResults struct {
	Items    []VerbResult  `json:"items"`
	Approval *app.Approval `json:"approval,omitempty"`
}

// Options of the verbs.
type (
	// NoOptions is the options of verbs that have none.
	NoOptions struct{}
	// PowerOptions says what to do with the power.
	PowerOptions struct {
		Action string `json:"action" doc:"on, off, soft (asks the system to shut down), cycle or reset"`
	}
	// ReasonOptions says why.
	ReasonOptions struct {
		Reason string `json:"reason,omitempty" doc:"why, for the record"`
	}
	// CommissionOptions chooses tests.
	CommissionOptions struct {
		Tests []string `json:"test,omitempty" doc:"test to make instead of those of the hardware profile, such as cpu or cpu,memory; none makes none"`
	}
	// OverrideOptions says where the operator vouches the machine stands.
	OverrideOptions struct {
		State  app.State `json:"state" doc:"ready or deployed"`
		Reason string    `json:"reason" doc:"why you are sure, for the record"`
	}
	// RescueOptions says who may log in to the rescue system.
	RescueOptions struct {
		AuthorizedKeys []string `json:"authorizedKeys,omitempty" doc:"SSH public key that may log in to the rescue system" file:"true"`
	}
	// ExitISOOptions says what became of the machine.
	ExitISOOptions struct {
		Installed bool `json:"installed,omitempty" doc:"the image installed a system, which runs: the machine becomes deployed, and its power is left alone"`
	}
	// ReleaseOptions lists disks to wipe beyond those this machine's deploys wrote.
	ReleaseOptions struct {
		Disks []app.DiskID `json:"disks,omitempty" doc:"disks to wipe beyond those this machine's deploys wrote, by serial or wwn"`
	}
	// RetireOptions says how to let go of a machine.
	RetireOptions struct {
		Reason   string `json:"reason,omitempty" doc:"why, for the record"`
		PowerOff bool   `json:"powerOff,omitempty" doc:"switch it off"`
		Force    bool   `json:"force,omitempty" doc:"in every state; stops all traffic to its BMC at once"`
	}
)

// arguments are the options that a command line names without a flag.
var arguments = map[Verb][]string{Power: {"action"}, Override: {"state"}}

// verb makes the two routes of one verb: on one machine and on many.
func verb[O any](a *API, v Verb, summary string, options func(O) (VerbOptions, error)) []Route {
	read := func(c *Call, ids []string, in O) (VerbOptions, error) {
		o, err := options(in)
		if err == nil && o.Force {
			err = c.Who.Need(app.PermMachinesForce)
		}
		if err == nil && o.Deploy != nil && o.Deploy.Hostname != "" && len(ids) > 1 {
			err = app.Invalid("hostname", "cannot be the same on %d machines", len(ids)).Do("leave it out: each gets its machine's name")
		}
		return o, err
	}
	one := on(Route{ID: "machines." + string(v), Method: "POST", Path: "/api/v1/machines/{id}/" + string(v), Permission: app.PermMachinesWrite,
		Summary: summary, Status: http.StatusAccepted, CLI: CLI{"machine", string(v)}, Args: arguments[v]},
		func(c *Call, in O) (VerbResult, error) {
			m, err := a.Machines.Machine(c, c.Path["id"])
			if err != nil {
				return VerbResult{}, err
			}
			o, err := read(c, []string{m.ID}, in)
			if err != nil {
				return VerbResult{}, err
			}
			res, err := a.Service.Do(c, c.actor(), v, []string{m.ID}, o)
			if err != nil {
				return VerbResult{}, err
			}
			if len(res) != 1 {
				return VerbResult{}, app.Errorf(app.Internal, "verb-result", "%s gave %d results for one machine", v, len(res))
			}
			if res[0].Error != nil {
				return VerbResult{}, res[0].Error
			}
			return res[0], nil
		})
	many := on(Route{ID: "machines.batch." + string(v), Method: "POST", Path: "/api/v1/machines/actions/" + string(v),
		Permission: app.PermMachinesWrite, Summary: summary + " Many machines at once.", Status: http.StatusAccepted},
		func(c *Call, in Batch[O]) (VerbResults, error) {
			ids, err := a.targets(c, in.IDs, in.Filter)
			if err != nil {
				return VerbResults{}, err
			}
			o, err := read(c, ids, in.Options)
			if err != nil {
				return VerbResults{}, err
			}
			ap, err := a.gate(c, v, o, in.Options, ids, in.Confirm)
			if err != nil {
				return VerbResults{}, err
			}
			if ap != nil {
				return accepted(c, ap), nil
			}
			c.patience(len(ids))
			res, err := a.Service.Do(c, c.actor(), v, ids, o)
			return VerbResults{Items: res}, err
		})
	return []Route{one, many}
}

// targets resolves a batch to the ids of machines that exist, each once.
func (a *API) targets(c *Call, names []string, f *TargetFilter) ([]string, error) {
	if (len(names) > 0) == (f != nil) {
		return nil, app.Invalid("ids", "name the machines either by ids or by filter")
	}
	var ids []string
	if f != nil {
		return a.matching(c, f)
	}
	if len(names) > MaxBatch {
		return nil, app.Invalid("ids", "there are %d, the limit is %d", len(names), MaxBatch).Do("split the batch")
	}
	for _, n := range names {
		m, err := a.Machines.Machine(c, n)
		if err != nil {
			return nil, at(err, "ids")
		}
		if !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}

func (a *API) matching(c *Call, f *TargetFilter) ([]string, error) {
	if f.Text == "" && len(f.States) == 0 && f.Pool == "" && len(f.Labels) == 0 {
		return nil, app.Invalid("filter", "is empty, which would mean every machine").Do("narrow it, or list the ids")
	}
	for _, s := range f.States {
		if _, err := parseStates(string(s)); err != nil {
			return nil, err
		}
	}
	limit := MaxBatch
	if f.Count < 0 || f.Count > MaxBatch {
		return nil, app.Invalid("filter.count", "is not between 1 and %d", MaxBatch)
	}
	if f.Count > 0 {
		limit = f.Count
	}
	page, err := a.Machines.ListMachines(c, app.MachineFilter{Text: f.Text, States: f.States, Pool: f.Pool, Labels: f.Labels, Limit: limit})
	if err != nil {
		return nil, err
	}
	if f.Count > page.Total {
		return nil, app.Errorf(app.Conflict, "too-few-machines", "%d machines match, %d are wanted", page.Total, f.Count).At("filter.count").Do("ask for fewer, or widen the filter")
	}
	if f.Count == 0 && page.Total > MaxBatch {
		return nil, app.Invalid("filter", "matches %d machines, the limit is %d", page.Total, MaxBatch).Do("narrow it")
	}
	if page.Total == 0 {
		return nil, app.Invalid("filter", "matches no machine")
	}
	var ids []string
	for _, m := range page.Items {
		ids = append(ids, m.ID)
	}
	return ids, nil
}

// readers read the stored options of a batch that was approved.
var readers = map[Verb]func(json.RawMessage) (VerbOptions, error){
	Commission: reader(commissionOptions), Deploy: reader(deployOptions), Release: reader(releaseOptions), Rescue: reader(rescueOptions), ExitRescue: reader(plain),
	BootISO: reader(isoOptions), ExitISO: reader(exitISOOptions),
	Power: reader(powerOptions), Retire: reader(retireOptions), Delete: reader(retireOptions), RotateCredential: reader(plain),
}

func reader[O any](options func(O) (VerbOptions, error)) func(json.RawMessage) (VerbOptions, error) {
	return func(raw json.RawMessage) (VerbOptions, error) {
		var in O
		if err := json.Unmarshal(raw, &in); err != nil {
			return VerbOptions{}, fmt.Errorf("decoding the options of a batch: %w", err)
		}
		return options(in)
	}
}

func readOptions(v Verb, raw json.RawMessage) (VerbOptions, error) {
	read, ok := readers[v]
	if !ok {
		return VerbOptions{}, app.Errorf(app.Unsupported, "no-such-verb", "%q needs no approval in this build", v).Do("ask for it anew")
	}
	return read(raw)
}

func plain(NoOptions) (VerbOptions, error) { return VerbOptions{}, nil }

func withReason(in ReasonOptions) (VerbOptions, error) {
	return VerbOptions{Reason: in.Reason}, app.ValidLine("reason", in.Reason, 500)
}

func (a *API) verbRoutes() []Route {
	return slices.Concat(
		verb(a, Commission, "Boot the ramdisk, take the inventory, test the hardware, and make the machine ready.", commissionOptions),
		verb(a, Deploy, "Write an image to a disk and start its operating system.", deployOptions),
		verb(a, Release, "Wipe the disks that deploys wrote and make the machine ready again.", releaseOptions),
		verb(a, Rescue, "Boot the rescue system.", rescueOptions),
		verb(a, ExitRescue, "Leave the rescue system for where the machine was.", plain),
		verb(a, BootISO, "Boot an ISO image, such as an installer: from a virtual CD, or over the network.", isoOptions),
		verb(a, ExitISO, "Leave the ISO image for where the machine was, or for the system that it installed.", exitISOOptions),
		verb(a, Adopt, "Take an enrolled machine as deployed, on your word that a system is on its disk: nothing is looked at or changed, and it may be off.", plain),
		verb(a, Power, "Change the power: on, off, soft, cycle, reset.", powerOptions),
		verb(a, RotateCredential, "Give the BMC a new password, and store it once a login with it was seen.", plain),
		verb(a, Abort, "End the active workflow.", withReason),
		verb(a, Retry, "Try the failed or interrupted step again.", plain),
		verb(a, Override, "Vouch that a failed machine is ready or deployed.", overrideOptions),
		verb(a, Lock, "Protect a machine from release, wipe and delete.", withReason),
		verb(a, Unlock, "Take the protection away.", plain),
		verb(a, Retire, "Take a machine out of service.", retireOptions),
		verb(a, Delete, "Forget a machine.", retireOptions),
	)
}

func deployOptions(in app.DeploySpec) (VerbOptions, error) {
	if in.Image == "" {
		return VerbOptions{}, app.Invalid("image", "is missing").Do("give the id or name of an image")
	}
	if err := app.ValidBootPath("boot", in.Boot); err != nil {
		return VerbOptions{}, err
	}
	if in.Hostname != "" {
		if err := app.ValidName("hostname", in.Hostname); err != nil {
			return VerbOptions{}, err
		}
	}
	if err := app.ValidLine("kernelArgs", in.KernelArgs, 1024); err != nil {
		return VerbOptions{}, err
	}
	if err := validKeys("sshKeys", in.SSHKeys); err != nil {
		return VerbOptions{}, err
	}
	if len(in.UserData) > 64<<10 {
		return VerbOptions{}, app.Invalid("userData", "is %d bytes long, the limit is %d", len(in.UserData), 64<<10)
	}
	if k := in.Disk.Kind; k != "" && k != "ssd" && k != "hdd" && k != "nvme" {
		return VerbOptions{}, app.Invalid("disk.kind", "is no kind of disk").Do("use ssd, hdd or nvme")
	}
	if d := in.Disk; d.MinBytes < 0 || d.MaxBytes < 0 || d.MaxBytes > 0 && d.MinBytes > d.MaxBytes {
		return VerbOptions{}, app.Invalid("disk.minBytes", "no disk can match these sizes")
	}
	return VerbOptions{Deploy: &in}, nil
}

func releaseOptions(in ReleaseOptions) (VerbOptions, error) {
	if len(in.Disks) > 256 {
		return VerbOptions{}, app.Invalid("disks", "lists more than 256 disks")
	}
	for _, d := range in.Disks {
		if d.Serial == "" && d.WWN == "" {
			return VerbOptions{}, app.Invalid("disks", "a disk to wipe must be named by serial or WWN")
		}
	}
	return VerbOptions{Disks: in.Disks}, nil
}

func rescueOptions(in RescueOptions) (VerbOptions, error) {
	return VerbOptions{AuthorizedKeys: in.AuthorizedKeys}, validKeys("authorizedKeys", in.AuthorizedKeys)
}

func isoOptions(in app.ISOSpec) (VerbOptions, error) {
	if in.Image == "" {
		return VerbOptions{}, app.Invalid("image", "is missing").Do("give the id or name of an ISO image")
	}
	if !slices.Contains([]app.ISOVia{"", app.ISOByMedia, app.ISOByNetwork}, in.Via) {
		return VerbOptions{}, app.Invalid("via", "is no way to boot an image").Do("use %s or %s, or leave it out", app.ISOByMedia, app.ISOByNetwork)
	}
	return VerbOptions{ISO: &in}, nil
}

func exitISOOptions(in ExitISOOptions) (VerbOptions, error) {
	return VerbOptions{Installed: in.Installed}, nil
}

func powerOptions(in PowerOptions) (VerbOptions, error) {
	if !slices.Contains([]string{"on", "off", "soft", "cycle", "reset"}, in.Action) {
		return VerbOptions{}, app.Invalid("action", "is no power action").Do("use on, off, soft, cycle or reset")
	}
	return VerbOptions{Power: in.Action}, nil
}

func overrideOptions(in OverrideOptions) (VerbOptions, error) {
	if in.State != app.StateReady && in.State != app.StateDeployed {
		return VerbOptions{}, app.Invalid("state", "cannot be vouched for").Do("use ready or deployed")
	}
	if in.Reason == "" {
		return VerbOptions{}, app.Invalid("reason", "is missing").Do("say why you are sure")
	}
	return VerbOptions{State: in.State, Reason: in.Reason}, app.ValidLine("reason", in.Reason, 500)
}

func retireOptions(in RetireOptions) (VerbOptions, error) {
	return VerbOptions{Reason: in.Reason, PowerOff: in.PowerOff, Force: in.Force}, app.ValidLine("reason", in.Reason, 500)
}
