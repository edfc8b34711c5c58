package api

import (
	"encoding/json"
	"time"

	"github.com/better-compute/bcd/app"
)

// ListedCertificate is a certificate in a list.
type ListedCertificate struct {
	app.Certificate
	All bool `json:"erased"` // every disk was
}

func (a *API) certificateRoutes() []Route {
	return []Route{
		on(Route{ID: "workflows.certificate", Method: "GET", Path: "/api/v1/workflows/{id}/certificate", Permission: app.PermWorkflowsRead,
			Summary: "Show the erasure certificate of a release, which is kept when workflow and machine are gone.", CLI: CLI{"workflow", "certificate"}}, a.certificate),
		on(Route{ID: "certificates.list", Method: "GET", Path: "/api/v1/certificates", Permission: app.PermWorkflowsRead,
			Summary: "List erasure certificates, newest first, those of deleted machines too.",
			Query:   []Param{{"machine", "string", "id, name or serial number of a machine, which may be deleted"}, {"before", "string", "next of the page before"}, paramLimit},
			CLI:     CLI{"workflow", "certificates"}}, a.listCertificates),
	}
}

// certificate is what was kept, else the result of a release's step of that name.
func (a *API) certificate(c *Call, _ none) (*app.Certificate, error) {
	kept, err := a.Certificates.Certificate(c, c.Path["id"])
	if app.CodeOf(err) != app.NotFound {
		return kept, err
	}
	w, err := a.Workflows.Get(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	for _, s := range w.Steps {
		if s.ID != "certificate" || len(s.Result) == 0 {
			continue
		}
		var out app.Certificate
		if err := json.Unmarshal(s.Result, &out); err != nil {
			return nil, err
		}
		return &out, nil
	}
	return nil, app.Errorf(app.NotFound, "no-certificate", "this workflow has erased nothing that it could certify").
		Do("a release writes a certificate as soon as its wipe has ended; bcd workflow certificates lists those there are")
}

func (a *API) listCertificates(c *Call, _ none) (out List[ListedCertificate], err error) {
	limit, err := c.limit(100)
	if err != nil {
		return out, err
	}
	var before time.Time
	if s := c.Query.Get("before"); s != "" {
		if before, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return out, app.Invalid("before", "is no time of a certificate").Do("give the next of the page before")
		}
	}
	all, err := a.Certificates.ListCertificates(c, c.Query.Get("machine"), before, limit)
	out.Items = make([]ListedCertificate, 0, len(all))
	for _, x := range all {
		out.Items = append(out.Items, ListedCertificate{x, x.Erased()})
	}
	if len(all) == limit {
		out.Next = all[limit-1].Issued.Format(time.RFC3339Nano)
	}
	return out, err
}
