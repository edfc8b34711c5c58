package api

import (
	"encoding/json"

	"github.com/better-compute/bcd/app"
)

func (a *API) certificateRoutes() []Route {
	return []Route{
		on(Route{ID: "workflows.certificate", Method: "GET", Path: "/api/v1/workflows/{id}/certificate", Permission: app.PermWorkflowsRead,
			Summary: "Show the erasure certificate of a release.", CLI: CLI{"workflow", "certificate"}}, a.certificate),
	}
}

// certificate is the result of a release's step of that name.
func (a *API) certificate(c *Call, _ none) (*app.Certificate, error) {
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
		Do("a release writes a certificate as soon as its wipe has ended")
}
