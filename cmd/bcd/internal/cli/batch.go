package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/web/api"
)

// selection names the machines of a batch by what they are, in place of their names.
type selection struct {
	labels  map[string]string
	pool    string
	states  []string
	count   int
	confirm int
}

func newSelection(cmd *cobra.Command) *selection {
	s := &selection{}
	f := cmd.Flags()
	f.StringToStringVar(&s.labels, "label", nil, "machines that carry a label, KEY=VALUE, * for any value; may be given several times")
	f.StringVar(&s.pool, "in-pool", "", "machines of a pool")
	f.StringSliceVar(&s.states, "in-state", nil, "machines in a state, such as ready")
	f.IntVar(&s.count, "count", 0, "any so many of those that match")
	f.IntVar(&s.confirm, "confirm", 0, "the number of machines, for what cannot be taken back on a site with one operator")
	return s
}

// chosen reports whether machines are named by what they are.
func (s *selection) chosen() bool {
	return s != nil && (len(s.labels) > 0 || s.pool != "" || len(s.states) > 0 || s.count > 0)
}

// request is the body of the batch route. names are given when nothing was chosen.
func (s *selection) request(names []string, options any) map[string]any {
	out := map[string]any{"options": orEmpty(options)}
	if s.confirm != 0 {
		out["confirm"] = s.confirm
	}
	if !s.chosen() {
		out["ids"] = names
		return out
	}
	filter := map[string]any{}
	put := func(name string, v any, given bool) {
		if given {
			filter[name] = v
		}
	}
	put("labels", s.labels, len(s.labels) > 0)
	put("pool", s.pool, s.pool != "")
	put("states", s.states, len(s.states) > 0)
	put("count", s.count, s.count > 0)
	out["filter"] = filter
	return out
}

// batchRoute is the address of a verb's batch.
func batchRoute(rt api.Route) string {
	return "/api/v1/machines/actions/" + rt.Path[strings.LastIndex(rt.Path, "/")+1:]
}
