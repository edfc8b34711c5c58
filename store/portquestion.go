package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/better-compute/bcd/app"
)

// MaxPortQuestions is how many questions about ports are kept.
const MaxPortQuestions = 1000

// AskPort puts a question down.
func (db *DB) AskPort(ctx context.Context, q *app.PortQuestion) (anew bool, err error) {
	err = db.write(ctx, func(tx *txn) error {
		next := *q
		old, err := document[app.PortQuestion](tx, "SELECT doc FROM port_questions WHERE id = ?", q.ID)
		switch anew = false; {
		case errors.Is(err, sql.ErrNoRows):
			anew = true
		case err != nil:
			return err
		case old.State == app.QuestionAccepted: // it was followed, and things are as before again
			anew = true
		default:
			next = *old
			next.Last = q.Last
		}
		if err := putPortQuestion(tx, &next); err != nil {
			return err
		}
		*q = next
		if !anew {
			return nil
		}
		_, err = tx.Exec(`DELETE FROM port_questions WHERE id IN
			(SELECT id FROM port_questions WHERE id <> ? ORDER BY last DESC LIMIT -1 OFFSET ?)`, q.ID, db.maxQuestions-1)
		return err
	})
	return anew, err
}

func putPortQuestion(tx *txn, q *app.PortQuestion) error {
	bare := *q
	bare.Owner, bare.Machine = "", ""
	doc, err := encode(&bare)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO port_questions (id, mac, owner_id, machine_id, state, last, doc) VALUES (?, ?, NULLIF(?, ''), ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET state = excluded.state, last = excluded.last, doc = excluded.doc`,
		q.ID, q.MAC, q.OwnerID, q.MachineID, q.State, micros(q.Last), doc)
	return err
}

// PortQuestion finds a question by its id.
func (db *DB) PortQuestion(ctx context.Context, id string) (q *app.PortQuestion, err error) {
	err = db.read(ctx, func(tx *txn) error { q, err = portQuestion(tx, id); return err })
	return q, err
}

func portQuestion(tx *txn, id string) (*app.PortQuestion, error) {
	q, err := document[app.PortQuestion](tx, "SELECT doc FROM port_questions WHERE id = ?", id)
	return q, notFound(err, "question", id)
}

// ListPortQuestions gives the questions with the names of their machines. The facts of an open one are that the port is the
// owner's still, or that it is a proposed one of the machine, or nobody's.
func (db *DB) ListPortQuestions(ctx context.Context) (all []app.PortQuestion, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.PortQuestion](tx, `SELECT json_set(q.doc, '$.machine', m.name, '$.owner', coalesce(o.name, '')) FROM port_questions q
			JOIN machines m ON m.id = q.machine_id LEFT JOIN machines o ON o.id = q.owner_id LEFT JOIN machine_macs a ON a.mac = q.mac
			WHERE q.state <> 'open' OR CASE WHEN q.owner_id IS NULL
				THEN a.machine_id IS NULL OR a.machine_id = q.machine_id AND EXISTS (SELECT 1 FROM json_each(m.doc, '$.nics') n
					WHERE n.value ->> 'mac' = q.mac AND NOT n.value ->> 'confirmed')
				ELSE a.machine_id = q.owner_id END
			ORDER BY q.last DESC, q.id`)
		return err
	})
	return all, err
}

// AnswerPort changes a question and its machines.
func (db *DB) AnswerPort(ctx context.Context, id string, answer func(q *app.PortQuestion, owner, machine *app.Machine) error) (q *app.PortQuestion, err error) {
	err = db.write(ctx, func(tx *txn) error { q, err = db.answerPort(tx, id, answer); return err })
	if err != nil {
		return nil, err
	}
	return q, nil
}

func (db *DB) answerPort(tx *txn, id string, answer func(q *app.PortQuestion, owner, machine *app.Machine) error) (*app.PortQuestion, error) {
	q, err := portQuestion(tx, id)
	if err != nil {
		return nil, err
	}
	var owner *app.Machine
	if q.OwnerID != "" {
		if owner, err = machine(tx, q.OwnerID); err != nil {
			return nil, err
		}
	}
	m, err := machine(tx, q.MachineID)
	if err != nil {
		return nil, err
	}
	if err := answer(q, owner, m); err != nil {
		return nil, err
	}
	for _, x := range []*app.Machine{owner, m} { // the owner first: it lets go of the port that the other takes
		if x != nil {
			if err := storeMachine(tx, x, db.now()); err != nil {
				return nil, err
			}
		}
	}
	if q.Machine = m.Name; owner != nil {
		q.Owner = owner.Name
	}
	if err := putPortQuestion(tx, q); err != nil || q.State != app.QuestionAccepted {
		return q, err
	}
	_, err = tx.Exec("DELETE FROM port_questions WHERE mac = ? AND id <> ?", q.MAC, q.ID)
	return q, err
}

// storeMachine writes a machine that was changed in this transaction.
func storeMachine(tx *txn, m *app.Machine, now time.Time) error {
	m.Version, m.Updated = m.Version+1, now
	return updateMachine(tx, m)
}

// DeletePortQuestion forgets a question.
func (db *DB) DeletePortQuestion(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *txn) error {
		return removed(tx, "question", id, "DELETE FROM port_questions WHERE id = ?", id)
	})
}
