package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// keepWorkflows is how many finished workflows of one machine are kept; older ones go with their journals.
const keepWorkflows = 200

// CreateWorkflow writes a workflow and the machine it changes.
func (db *DB) CreateWorkflow(ctx context.Context, w *workflow.Workflow, change func(*app.Machine) error) error {
	return db.write(ctx, func(tx *txn) error {
		m, err := db.changeMachine(tx, w.MachineID, change)
		if err != nil {
			return err
		}
		w.MachineID = m.ID
		if err := refuseSecond(tx, w, m); err != nil {
			return err
		}
		head, err := encodeHead(w)
		if err != nil {
			return err
		}
		res, err := tx.Exec("INSERT INTO workflows (id, verb, machine_id, active, doc) VALUES (?, ?, ?, ?, ?)",
			w.ID, w.Verb, w.MachineID, w.State.Active(), head)
		if err != nil {
			return err
		}
		seq, err := res.LastInsertId()
		if err != nil {
			return err
		}
		if err := putData(tx, seq, w.Data); err != nil {
			return err
		}
		for i := range w.Steps {
			if err := putStep(tx, seq, i, &w.Steps[i]); err != nil {
				return err
			}
		}
		return pruneWorkflows(tx, w.MachineID)
	})
}

func refuseSecond(tx *txn, w *workflow.Workflow, m *app.Machine) error {
	other, err := document[workflow.Workflow](tx,
		"SELECT doc FROM workflows WHERE machine_id = ? AND active = 1 AND id <> ?", w.MachineID, w.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return app.Errorf(app.Conflict, "workflow-active", "machine %s has an active workflow: %s %s, %s", m.Name, other.Verb, other.ID, other.State).
		Do("wait for it to end, or abort it")
}

func pruneWorkflows(tx *txn, machineID string) error {
	_, err := tx.Exec(`DELETE FROM workflows WHERE machine_id = ?1 AND active = 0 AND seq <= (
		SELECT seq FROM workflows WHERE machine_id = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)`, machineID, keepWorkflows)
	return err
}

// Workflow finds a workflow by its id.
func (db *DB) Workflow(ctx context.Context, id string) (*workflow.Workflow, error) {
	all, err := db.selectWorkflows(ctx, "w.id = ?", id)
	if err == nil && len(all) == 0 {
		err = app.Missing("workflow", id)
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// ListWorkflows gives workflows, newest first.
func (db *DB) ListWorkflows(ctx context.Context, f workflow.Filter) ([]workflow.Workflow, error) {
	where, args := "w.seq > 0", []any{}
	add := func(cond string, a any) { where += " AND " + cond; args = append(args, a) }
	if f.MachineID != "" {
		add("machine_id = ?", f.MachineID)
	}
	if f.Verb != "" {
		add("verb = ?", f.Verb)
	}
	if f.Active {
		add("active = ?", 1)
	}
	if f.Before != "" {
		add("w.seq < coalesce((SELECT seq FROM workflows WHERE id = ?), 0)", f.Before)
	}
	args = append(args, pageSize(f.Limit, 50))
	return db.selectWorkflows(ctx, where+" ORDER BY w.seq DESC LIMIT ?", args...)
}

func (db *DB) selectWorkflows(ctx context.Context, where string, args ...any) (all []workflow.Workflow, err error) {
	err = db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query(`SELECT w.seq, w.doc, coalesce(d.data, '') FROM workflows w
			LEFT JOIN workflow_data d ON d.seq = w.seq WHERE `+where, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		at := map[int64]int{}
		var seqs []int64
		for rows.Next() {
			var seq int64
			var doc, data string
			if err := rows.Scan(&seq, &doc, &data); err != nil {
				return err
			}
			w, err := decode[workflow.Workflow](doc)
			if err != nil {
				return err
			}
			w.Data = rawOrNil(data)
			at[seq] = len(all)
			seqs = append(seqs, seq)
			all = append(all, *w)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return readSteps(tx, seqs, func(seq int64) *workflow.Workflow { return &all[at[seq]] })
	})
	return all, err
}

func readSteps(tx *txn, seqs []int64, of func(int64) *workflow.Workflow) error {
	list, err := json.Marshal(seqs)
	if err != nil || len(seqs) == 0 {
		return err
	}
	rows, err := tx.Query(`SELECT seq, doc, coalesce(progress, '') FROM workflow_steps
		WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq, idx`, string(list))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var doc, progress string
		if err := rows.Scan(&seq, &doc, &progress); err != nil {
			return err
		}
		s, err := decode[workflow.Step](doc)
		if err != nil {
			return err
		}
		if progress != "" {
			if s.Progress, err = decode[workflow.Progress](progress); err != nil {
				return err
			}
		}
		w := of(seq)
		w.Steps = append(w.Steps, *s)
	}
	return rows.Err()
}

// SaveStep writes one step with its workflow's cursor, state, error and data, and appends to the journal.
func (db *DB) SaveStep(ctx context.Context, w *workflow.Workflow, step int, entries ...workflow.Entry) error {
	return db.write(ctx, func(tx *txn) error {
		seq, err := putHead(tx, w)
		if err != nil {
			return err
		}
		if step < 0 || step >= len(w.Steps) {
			return fmt.Errorf("saving step %d of workflow %s: it has %d", step, w.ID, len(w.Steps))
		}
		if err := putStep(tx, seq, step, &w.Steps[step]); err != nil {
			return err
		}
		return db.appendJournal(tx, seq, entries)
	})
}

// EndWorkflow writes a workflow's final state, its steps and the changed machine, if that is still there.
func (db *DB) EndWorkflow(ctx context.Context, w *workflow.Workflow, change func(*app.Machine) error, entries ...workflow.Entry) error {
	return db.write(ctx, func(tx *txn) error {
		_, err := db.changeMachine(tx, w.MachineID, change)
		if err != nil && app.CodeOf(err) != app.NotFound {
			return err
		}
		return db.putWhole(tx, w, entries)
	})
}

// ReopenWorkflow makes a finished workflow active again, with all its steps.
func (db *DB) ReopenWorkflow(ctx context.Context, w *workflow.Workflow, change func(*app.Machine) error, entries ...workflow.Entry) error {
	return db.write(ctx, func(tx *txn) error {
		m, err := machine(tx, w.MachineID)
		if err != nil {
			return err
		}
		if err := refuseSecond(tx, w, m); err != nil {
			return err
		}
		if _, err := db.changeMachine(tx, w.MachineID, change); err != nil {
			return err
		}
		return db.putWhole(tx, w, entries)
	})
}

func (db *DB) putWhole(tx *txn, w *workflow.Workflow, entries []workflow.Entry) error {
	seq, err := putHead(tx, w)
	if err != nil {
		return err
	}
	for i := range w.Steps {
		if err := putStep(tx, seq, i, &w.Steps[i]); err != nil {
			return err
		}
	}
	return db.appendJournal(tx, seq, entries)
}

// SaveProgress keeps how far a step is, while it runs: one that came late does not overwrite the end.
func (db *DB) SaveProgress(ctx context.Context, workflowID, stepID string, p workflow.Progress) error {
	doc, err := encode(&p)
	if err != nil {
		return err
	}
	return db.write(ctx, func(tx *txn) error {
		_, err := tx.Exec(`UPDATE workflow_steps SET progress = ? WHERE seq = (SELECT seq FROM workflows WHERE id = ?) AND id = ?
			AND json_extract(doc, '$.state') = ?`, doc, workflowID, stepID, workflow.StepRunning)
		return err
	})
}

// Journal gives the entries of a workflow, oldest first.
func (db *DB) Journal(ctx context.Context, workflowID string) (all []workflow.Entry, err error) {
	err = db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query(`SELECT j.id, j.time, j.step_id, j.attempt, j.what, coalesce(j.data, '') FROM journal j
			JOIN workflows w ON w.seq = j.seq WHERE w.id = ? ORDER BY j.id`, workflowID)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			e := workflow.Entry{WorkflowID: workflowID}
			var at int64
			var data string
			if err := rows.Scan(&e.ID, &at, &e.StepID, &e.Attempt, &e.What, &data); err != nil {
				return err
			}
			e.Time, e.Data = fromMicros(at), rawOrNil(data)
			all = append(all, e)
		}
		return rows.Err()
	})
	return all, err
}

func (db *DB) appendJournal(tx *txn, seq int64, entries []workflow.Entry) error {
	for _, e := range entries {
		if e.Time.IsZero() {
			e.Time = db.now()
		}
		_, err := tx.Exec("INSERT INTO journal (seq, time, step_id, attempt, what, data) VALUES (?, ?, ?, ?, ?, ?)",
			seq, micros(e.Time), e.StepID, e.Attempt, e.What, textOrNil(e.Data))
		if err != nil {
			return err
		}
	}
	return nil
}

// encodeHead gives the document of a workflow without what is kept in rows of its own.
func encodeHead(w *workflow.Workflow) (string, error) {
	head := *w
	head.Steps, head.Data = nil, nil
	return encode(&head)
}

func putHead(tx *txn, w *workflow.Workflow) (seq int64, err error) {
	head, err := encodeHead(w)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow("UPDATE workflows SET active = ?, doc = ? WHERE id = ? RETURNING seq", w.State.Active(), head, w.ID).Scan(&seq)
	if err != nil {
		return 0, notFound(err, "workflow", w.ID)
	}
	return seq, putData(tx, seq, w.Data)
}

func putData(tx *txn, seq int64, data json.RawMessage) error {
	if len(data) == 0 {
		return nil
	}
	_, err := tx.Exec(`INSERT INTO workflow_data (seq, data) VALUES (?, ?)
		ON CONFLICT (seq) DO UPDATE SET data = excluded.data WHERE data <> excluded.data`, seq, string(data))
	return err
}

func putStep(tx *txn, seq int64, idx int, s *workflow.Step) error {
	row := *s
	row.Progress = nil
	doc, err := encode(&row)
	if err != nil {
		return err
	}
	var progress any
	if s.Progress != nil {
		p := *s.Progress
		if progress, err = encode(&p); err != nil {
			return err
		}
	}
	_, err = tx.Exec(`INSERT INTO workflow_steps (seq, idx, id, doc, progress) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (seq, idx) DO UPDATE SET id = excluded.id, doc = excluded.doc, progress = excluded.progress`,
		seq, idx, s.ID, doc, progress)
	return err
}

func textOrNil(j json.RawMessage) any {
	if len(j) == 0 {
		return nil
	}
	return string(j)
}

func rawOrNil(s string) json.RawMessage {
	if s == "" {
		return nil
	}
	return json.RawMessage(s)
}
