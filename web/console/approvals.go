package console

import (
	"net/http"
	"time"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func approvalPages() []Page {
	return []Page{get("/approvals", approvals), post("/approvals/{id}", decideApproval)}
}

func approvals(c *Console, q *request) error {
	l, err := ask[api.List[app.Approval]](q, "approvals.list", nil)
	if err != nil {
		return err
	}
	d := views.ApprovalsData{All: l.Items, Now: c.api.Now()}
	return q.show("Approvals", "/approvals", func(p views.Page) templ.Component { return views.Approvals(p, d) })
}

func decideApproval(c *Console, q *request) error {
	in := api.ApprovalInput{Reason: q.form.Get("reason")}
	switch q.form.Get("do") {
	case "approve":
	case "deny":
		in.Deny = true
	default:
		q.refuse(app.Invalid("do", "nothing was decided").Do("approve or deny"))
		return approvals(c, q)
	}
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(api.Patience(api.MaxBatch)))
	a, err := ask[*app.Approval](q, "approvals.decide", in)
	if err != nil {
		q.refuse(err)
		return approvals(c, q)
	}
	return q.done("/approvals", "The batch is "+string(a.State)+".")
}
