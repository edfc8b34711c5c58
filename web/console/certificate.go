package console

import (
	"net/url"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
)

func certificatePages() []Page {
	return []Page{get("/workflows/{id}/certificate", certificate), get("/certificates", certificates)}
}

func certificates(c *Console, q *request) error {
	d := views.CertificatesData{Machine: q.Query.Get("machine")}
	l, err := with[api.List[api.ListedCertificate]](q, "certificates.list", url.Values{"machine": {d.Machine}, "before": {q.Query.Get("before")}})
	if err != nil {
		return err
	}
	d.All, d.Next = l.Items, l.Next
	return q.show("Erasure certificates", "/workflows", func(p views.Page) templ.Component { return views.Certificates(p, d) })
}

func certificate(c *Console, q *request) error {
	cert, err := ask[*app.Certificate](q, "workflows.certificate", nil)
	if err != nil {
		return err
	}
	_, err = ask[*workflow.Workflow](q, "workflows.get", nil)
	if err != nil && app.CodeOf(err) != app.NotFound {
		return err
	}
	kept := err == nil
	return q.show("Erasure certificate of "+cert.Machine, "/workflows", func(p views.Page) templ.Component { return views.Certificate(p, *cert, kept) })
}
