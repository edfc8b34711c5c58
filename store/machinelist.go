package store

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Limits of a machine list.
const (
	defaultPage = 100
	maxPage     = 1000
	maxText     = 100 // bytes of a text filter that are looked for
	maxLabels   = 16
)

// ListMachines gives one page, ordered by name. The filter is answered from one index; only the page's rows are read.
func (db *DB) ListMachines(ctx context.Context, f app.MachineFilter) (app.MachinePage, error) {
	var page app.MachinePage
	where, args, err := machineWhere(f)
	if err != nil {
		return page, err
	}
	limit := pageSize(f.Limit, defaultPage)
	err = db.read(ctx, func(tx *txn) error {
		if page.Count, err = machineCounts(tx); err != nil {
			return err
		}
		page.Items, err = documents[app.Machine](tx, `SELECT m.doc FROM (
				SELECT rowid AS r FROM machines INDEXED BY machines_list WHERE name > ?`+where+` ORDER BY name LIMIT ?
			) p JOIN machines m ON m.rowid = p.r ORDER BY m.name`,
			append(append([]any{f.After}, args...), limit+1)...)
		if err != nil {
			return err
		}
		if page.Total = len(page.Items); f.After != "" || page.Total > limit { // there is more than this page
			page.Total, err = machineTotal(tx, f, page.Count, where, args)
		}
		return err
	})
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		page.Next = page.Items[limit-1].Name
	}
	return page, err
}

func machineCounts(tx *txn) (map[app.State]int, error) {
	rows, err := tx.Query("SELECT state, n FROM machine_counts WHERE n > 0")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counts := map[app.State]int{}
	for rows.Next() {
		var s app.State
		var n int
		if err := rows.Scan(&s, &n); err != nil {
			return nil, err
		}
		counts[s] = n
	}
	return counts, rows.Err()
}

// machineTotal counts what the filter selects; a filter by state alone needs no look at the rows.
func machineTotal(tx *txn, f app.MachineFilter, counts map[app.State]int, where string, args []any) (n int, err error) {
	if f.Text == "" && f.Pool == "" && len(f.Labels) == 0 && len(f.IDs) == 0 {
		states := map[app.State]bool{}
		for _, s := range f.States {
			states[s] = true
		}
		for s, c := range counts {
			if len(states) == 0 || states[s] {
				n += c
			}
		}
		return n, nil
	}
	err = tx.QueryRow("SELECT count(*) FROM machines INDEXED BY machines_list WHERE name > ''"+where, args...).Scan(&n)
	return n, err
}

// machineWhere gives the conditions of a filter, each led by " AND ".
func machineWhere(f app.MachineFilter) (where string, args []any, err error) {
	var b strings.Builder
	add := func(cond string, a ...any) { b.WriteString(" AND " + cond); args = append(args, a...) }
	list := func(v any) string { j, _ := json.Marshal(v); return string(j) } // strings always encode
	if len(f.Text) > maxText {
		return "", nil, app.Invalid("text", "is longer than %d bytes", maxText)
	}
	if len(f.Labels) > maxLabels {
		return "", nil, app.Invalid("labels", "more than %d labels", maxLabels)
	}
	if len(f.IDs) > maxPage {
		return "", nil, app.Invalid("ids", "more than %d ids", maxPage)
	}
	if len(f.States) > 0 {
		add("state IN (SELECT value FROM json_each(?))", list(f.States))
	}
	if f.Pool != "" {
		add("pool = ?", f.Pool)
	}
	for k, v := range f.Labels {
		if v == "*" {
			add("id IN (SELECT machine_id FROM machine_labels WHERE key = ?)", k)
		} else {
			add("id IN (SELECT machine_id FROM machine_labels WHERE key = ? AND value = ?)", k, v)
		}
	}
	if len(f.IDs) > 0 {
		add("id IN (SELECT value FROM json_each(?))", list(f.IDs))
	}
	if f.Text != "" {
		add("instr(search, ?) > 0", searchFor(f.Text))
	}
	return b.String(), args, nil
}

// searchFor is the stored spelling of what a person typed: a whole MAC address in any form, else lower case.
func searchFor(text string) string {
	if mac, err := app.ParseMAC(text); err == nil && strings.ContainsAny(text, ":-.") {
		return string(mac)
	}
	return strings.ToLower(text)
}

func pageSize(asked, usual int) int {
	if asked <= 0 {
		return usual
	}
	return min(asked, maxPage)
}
