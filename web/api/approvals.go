package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
)

// approvalLife is how long a batch waits for a second operator.
const approvalLife = 24 * time.Hour

// ReasonConfirm is the reason of a batch whose number of machines must be typed.
const ReasonConfirm = "confirm-count"

// DefaultDestructiveBatch is how many machines one person may do something to at once that cannot be undone.
const DefaultDestructiveBatch = 5

// ApprovalInput decides.
type ApprovalInput struct {
	Deny   bool   `json:"deny,omitempty" doc:"refuse it"`
	Reason string `json:"reason,omitempty" doc:"why, for the record"`
}

func (a *API) approvalRoutes() []Route {
	return []Route{
		on(Route{ID: "approvals.list", Method: "GET", Path: "/api/v1/approvals", Permission: app.PermMachinesRead,
			Summary: "List batches that wait for a second operator, and those that were decided.", CLI: CLI{"approval", "list"}}, a.listApprovals),
		on(Route{ID: "approvals.get", Method: "GET", Path: "/api/v1/approvals/{id}", Permission: app.PermMachinesRead,
			Summary: "Show one approval with its machines.", CLI: CLI{"approval", "show"}},
			func(c *Call, _ none) (*app.Approval, error) { return a.approval(c) }),
		on(Route{ID: "approvals.decide", Method: "POST", Path: "/api/v1/approvals/{id}/decision", Permission: app.PermMachinesWrite,
			Summary: "Approve, or deny, a batch that another operator asked for.", CLI: CLI{"approval", "decide"}}, a.decide),
	}
}

// operationOf names what a verb does to each machine of a batch, or "" when it takes nothing away that another call could
// not give back. It is counted by operation: a power cycle is one whichever way it was asked for.
func operationOf(v Verb, o VerbOptions) string {
	switch v {
	case Commission, Deploy, Release, Rescue, ExitRescue, BootISO, ExitISO, RotateCredential, Delete:
		return string(v)
	case Power:
		if o.Power != "on" {
			return "power " + o.Power
		}
	case Retire:
		if o.PowerOff || o.Force {
			return "retire"
		}
	}
	return ""
}

// gate lets a batch through, or keeps it for a second operator. On a site with one operator the number of machines is typed
// instead.
func (a *API) gate(c *Call, v Verb, o VerbOptions, options any, ids []string, confirm int) (*app.Approval, error) {
	operation := operationOf(v, o)
	if operation == "" || len(ids) <= a.DestructiveBatch {
		return nil, nil
	}
	others, err := a.others(c)
	if err != nil {
		return nil, err
	}
	if !others {
		if confirm == len(ids) {
			return nil, nil
		}
		return nil, app.Errorf(app.InvalidInput, ReasonConfirm, "%s of %d machines cannot be taken back", operation, len(ids)).
			At("confirm").Do("give their number as confirm: %d", len(ids))
	}
	return a.keep(c, v, operation, options, ids)
}

// others reports whether somebody else than the caller may approve.
func (a *API) others(c *Call) (bool, error) {
	users, err := a.Access.ListUsers(c)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(users, func(u app.User) bool {
		return u.ID != c.Who.User.ID && !u.Disabled && u.Role != app.RoleViewer
	}), nil
}

func (a *API) keep(c *Call, v Verb, operation string, options any, ids []string) (*app.Approval, error) {
	raw, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("encoding the options: %w", err)
	}
	now := a.Now().UTC()
	ap := &app.Approval{ID: app.NewID("ap"), Operation: operation, Verb: string(v), Options: raw, UserID: c.Who.User.ID, Actor: c.actor(), State: app.ApprovalPending,
		Created: now, Expires: now.Add(approvalLife), Reason: fmt.Sprintf("%s of %d machines: more than %d at once need a second operator", operation, len(ids), a.DestructiveBatch)}
	for _, id := range ids {
		m, err := a.Machines.Machine(c, id)
		if err != nil {
			return nil, err
		}
		ap.Machines = append(ap.Machines, app.ApprovalItem{ID: m.ID, Name: m.Name})
	}
	if err := a.Approvals.CreateApproval(c, ap); err != nil {
		return nil, err
	}
	return ap, a.Bus.Record(c, app.Event{Kind: "approval.asked", Level: "warn", Actor: ap.Actor, Message: "approval " + ap.ID + ": " + ap.Reason})
}

// shown is an approval as the one who asks may see it.
func (a *API) shown(c *Call, ap app.Approval) app.Approval {
	ap = a.lapsed(ap)
	ap.Options = c.discreet(ap.Options)
	return ap
}

// lapsed shows an approval whose time is over as expired.
func (a *API) lapsed(ap app.Approval) app.Approval {
	if ap.State == app.ApprovalPending && a.Now().After(ap.Expires) {
		ap.State = app.ApprovalExpired
	}
	return ap
}

func (a *API) listApprovals(c *Call, _ none) (List[app.Approval], error) {
	all, err := a.Approvals.ListApprovals(c)
	for i := range all {
		all[i] = a.shown(c, all[i])
	}
	return list(all, err)
}

func (a *API) approval(c *Call) (*app.Approval, error) {
	ap, err := a.Approvals.Approval(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	out := a.shown(c, *ap)
	return &out, nil
}

// decide takes one decision. An approved batch is carried out in the name of both.
func (a *API) decide(c *Call, in ApprovalInput) (*app.Approval, error) {
	if err := app.ValidLine("reason", in.Reason, 500); err != nil {
		return nil, err
	}
	ap, err := a.Approvals.UpdateApproval(c, c.Path["id"], func(ap *app.Approval) error {
		if now := a.lapsed(*ap); now.State != app.ApprovalPending {
			return app.Errorf(app.Conflict, "approval-"+string(now.State), "this approval is %s", now.State).Do("ask for the batch again if it is still wanted")
		}
		if ap.UserID == c.Who.User.ID && !in.Deny {
			return app.Errorf(app.Forbidden, "own-approval", "the one who asked cannot approve").Do("ask another operator")
		}
		ap.State, ap.DecidedBy, ap.Decided = app.ApprovalApproved, c.actor(), a.Now().UTC()
		if in.Deny {
			ap.State = app.ApprovalDenied
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	said := fmt.Sprintf("approval %s, %s of %d machines asked for by %s: %s", ap.ID, ap.Operation, len(ap.Machines), ap.Actor, ap.State)
	if in.Reason != "" {
		said += ": " + in.Reason
	}
	if err := a.Bus.Record(c, app.Event{Kind: "approval." + string(ap.State), Level: "warn", Actor: c.actor(), Message: said}); err != nil || in.Deny {
		return ap, err
	}
	return a.carryOut(c, ap)
}

// carryOut does what was approved and keeps what became of each machine.
func (a *API) carryOut(c *Call, ap *app.Approval) (*app.Approval, error) {
	o, err := readOptions(Verb(ap.Verb), ap.Options)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, m := range ap.Machines {
		ids = append(ids, m.ID)
	}
	c.patience(len(ids))
	res, err := a.Service.Do(c, ap.Actor+", approved by "+c.actor(), Verb(ap.Verb), ids, o)
	done, uerr := a.Approvals.UpdateApproval(c, ap.ID, func(ap *app.Approval) error {
		for i := range ap.Machines {
			for _, r := range res {
				if r.MachineID == ap.Machines[i].ID {
					ap.Machines[i].WorkflowID, ap.Machines[i].Error = r.WorkflowID, r.Error
				}
			}
		}
		return nil
	})
	return done, errors.Join(err, uerr)
}

// accepted answers a batch that waits: 202, with the approval in place of results.
func accepted(c *Call, ap *app.Approval) VerbResults {
	if c.w != nil {
		c.w.Header().Set("Location", "/api/v1/approvals/"+ap.ID)
	}
	return VerbResults{Items: []VerbResult{}, Approval: ap}
}
