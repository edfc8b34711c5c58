package console

import (
	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/console/views"
)

func certificatePages() []Page {
	return []Page{get("/workflows/{id}/certificate", certificate)}
}

func certificate(c *Console, q *request) error {
	cert, err := ask[*app.Certificate](q, "workflows.certificate", nil)
	if err != nil {
		return err
	}
	return q.show("Erasure certificate of "+cert.Machine, "/workflows", func(p views.Page) templ.Component { return views.Certificate(p, *cert) })
}
