package api

import (
	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// DoneInput says why an interrupted step counts as done.
type DoneInput struct {
	Reason string `json:"reason" doc:"why you are sure, for the record"`
}

func (a *API) workflowRoutes() []Route {
	read, write := app.PermWorkflowsRead, app.PermWorkflowsWrite
	return []Route{
		on(Route{ID: "workflows.list", Method: "GET", Path: "/api/v1/workflows", Permission: read, Summary: "List workflows, newest first.",
			Query: []Param{paramMachine, {"verb", "string", "such as deploy"}, {"active", "boolean", "only those that still hold their machine"}, {"before", "string", "next of the page before"}, paramLimit},
			CLI:   CLI{"workflow", "list"}}, a.listWorkflows),
		on(Route{ID: "workflows.get", Method: "GET", Path: "/api/v1/workflows/{id}", Permission: read, Summary: "Show one workflow with its steps.", CLI: CLI{"workflow", "show"}}, a.getWorkflow),
		on(Route{ID: "workflows.journal", Method: "GET", Path: "/api/v1/workflows/{id}/journal", Permission: read, Summary: "Show the journal of a workflow, oldest first.", CLI: CLI{"workflow", "journal"}}, a.journal),
		on(Route{ID: "workflows.retry", Method: "POST", Path: "/api/v1/workflows/{id}/retry", Permission: write, Summary: "Try the failed or interrupted step again.", CLI: CLI{"workflow", "retry"}}, a.retryWorkflow),
		on(Route{ID: "workflows.mark-done", Method: "POST", Path: "/api/v1/workflows/{id}/mark-done", Permission: write, Summary: "Take the interrupted step as done.", CLI: CLI{"workflow", "mark-done"}}, a.markDone),
		on(Route{ID: "workflows.abort", Method: "POST", Path: "/api/v1/workflows/{id}/abort", Permission: write, Summary: "End a workflow.", CLI: CLI{"workflow", "abort"}}, a.abortWorkflow),
	}
}

func (a *API) listWorkflows(c *Call, _ none) (List[workflow.Workflow], error) {
	f := workflow.Filter{Verb: c.Query.Get("verb"), Before: c.Query.Get("before")}
	var err error
	if f.Active, err = c.flag("active"); err != nil {
		return List[workflow.Workflow]{}, err
	}
	if f.Limit, err = c.limit(50); err != nil {
		return List[workflow.Workflow]{}, err
	}
	if f.MachineID, err = a.machineID(c); err != nil {
		return List[workflow.Workflow]{}, err
	}
	out, err := list(a.Workflows.List(c, f))
	for i := range out.Items {
		out.Items[i] = *c.workflow(&out.Items[i])
	}
	if n := len(out.Items); n == f.Limit {
		out.Next = out.Items[n-1].ID
	}
	return out, err
}

// machineID resolves the "machine" parameter, "" when absent.
func (a *API) machineID(c *Call) (string, error) {
	name := c.Query.Get("machine")
	if name == "" {
		return "", nil
	}
	m, err := a.Machines.Machine(c, name)
	if err != nil {
		return "", at(err, "machine")
	}
	return m.ID, nil
}

func (a *API) getWorkflow(c *Call, _ none) (*workflow.Workflow, error) {
	w, err := a.Workflows.Get(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	return c.workflow(w), nil
}

func (a *API) journal(c *Call, _ none) (List[workflow.Entry], error) {
	out, err := list(a.Workflows.Journal(c, c.Path["id"]))
	for i := range out.Items {
		out.Items[i].Data = c.discreet(out.Items[i].Data)
	}
	return out, err
}

func (a *API) retryWorkflow(c *Call, _ none) (*workflow.Workflow, error) {
	return a.after(c, a.Workflows.Retry(c, c.Path["id"], c.actor()))
}

func (a *API) markDone(c *Call, in DoneInput) (*workflow.Workflow, error) {
	if in.Reason == "" {
		return nil, app.Invalid("reason", "is missing").Do("say how you know that the step is done")
	}
	if err := app.ValidLine("reason", in.Reason, 500); err != nil {
		return nil, err
	}
	return a.after(c, a.Workflows.MarkDone(c, c.Path["id"], c.actor(), in.Reason))
}

func (a *API) abortWorkflow(c *Call, in ReasonOptions) (*workflow.Workflow, error) {
	if err := app.ValidLine("reason", in.Reason, 500); err != nil {
		return nil, err
	}
	return a.after(c, a.Workflows.Abort(c, c.Path["id"], c.actor(), in.Reason))
}

// after shows the workflow as it stands after a decision.
func (a *API) after(c *Call, err error) (*workflow.Workflow, error) {
	if err != nil {
		return nil, err
	}
	return a.getWorkflow(c, none{})
}
