package api

import (
	"net/http"
	"slices"

	"github.com/better-compute/bcd/app"
)

// Batch is a verb on many machines: those of ids, or those that match filter.
type Batch[O any] struct {
	IDs     []string      `json:"ids,omitempty"`
	Filter  *TargetFilter `json:"filter,omitempty"`
	Options O             `json:"options,omitempty"`
}

// TargetFilter selects machines for a batch. At least one member must be set.
type TargetFilter struct {
	Text   string            `json:"text,omitempty"`
	States []app.State       `json:"states,omitempty"`
	Pool   string            `json:"pool,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// VerbResults says what became of a batch, in the order of the machines.
type VerbResults struct {
	Items []VerbResult `json:"items"`
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
	// OverrideOptions says where the operator vouches the machine stands.
	OverrideOptions struct {
		State  app.State `json:"state" doc:"ready or deployed"`
		Reason string    `json:"reason" doc:"why you are sure, for the record"`
	}
	// RescueOptions says who may log in to the rescue system.
	RescueOptions struct {
		AuthorizedKeys []string `json:"authorizedKeys,omitempty" doc:"SSH public key that may log in to the rescue system" file:"true"`
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
	start := func(c *Call, ids []string, in O) ([]VerbResult, error) {
		o, err := options(in)
		if err != nil {
			return nil, err
		}
		if o.Force {
			if err := c.Who.Need(app.PermMachinesForce); err != nil {
				return nil, err
			}
		}
		if o.Deploy != nil && o.Deploy.Hostname != "" && len(ids) > 1 {
			return nil, app.Invalid("hostname", "cannot be the same on %d machines", len(ids)).Do("leave it out: each gets its machine's name")
		}
		return a.Service.Do(c, c.actor(), v, ids, o)
	}
	one := on(Route{ID: "machines." + string(v), Method: "POST", Path: "/api/v1/machines/{id}/" + string(v), Permission: app.PermMachinesWrite,
		Summary: summary, Status: http.StatusAccepted, CLI: CLI{"machine", string(v)}, Args: arguments[v]},
		func(c *Call, in O) (VerbResult, error) {
			m, err := a.Machines.Machine(c, c.Path["id"])
			if err != nil {
				return VerbResult{}, err
			}
			res, err := start(c, []string{m.ID}, in)
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
			c.patience(len(ids))
			res, err := start(c, ids, in.Options)
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
	page, err := a.Machines.ListMachines(c, app.MachineFilter{Text: f.Text, States: f.States, Pool: f.Pool, Labels: f.Labels, Limit: MaxBatch})
	if err != nil {
		return nil, err
	}
	if page.Total > MaxBatch {
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

func plain(NoOptions) (VerbOptions, error) { return VerbOptions{}, nil }

func withReason(in ReasonOptions) (VerbOptions, error) {
	return VerbOptions{Reason: in.Reason}, app.ValidLine("reason", in.Reason, 500)
}

func (a *API) verbRoutes() []Route {
	return slices.Concat(
		verb(a, Commission, "Boot the ramdisk, take the inventory, and make the machine ready.", plain),
		verb(a, Deploy, "Write an image to a disk and start its operating system.", deployOptions),
		verb(a, Release, "Wipe the disks that deploys wrote and make the machine ready again.", releaseOptions),
		verb(a, Rescue, "Boot the rescue system.", rescueOptions),
		verb(a, ExitRescue, "Leave the rescue system for where the machine was.", plain),
		verb(a, Adopt, "Take an enrolled machine that runs an operating system as deployed, untouched.", plain),
		verb(a, Power, "Change the power: on, off, soft, cycle, reset.", powerOptions),
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
