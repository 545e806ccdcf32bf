package sqlite

import (
	"context"

	"github.com/outmill/outmill"
)

const (
	sqlGet = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r WHERE id = ?1`

	sqlSeqsOf = `SELECT r.seq FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value`

	sqlDelete = `DELETE FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1))`

	// sqlDeadOf adds to the dead records those that were parked with their keys.
	sqlDeadOf = `WITH dead AS (
	SELECT r.seq, r.grp, r.topic, r.key, r.parked FROM json_each(?1) AS j
	CROSS JOIN {p:records} AS r ON r.id = j.value WHERE r.status = 'dead')
SELECT seq FROM dead
UNION
SELECT along.seq FROM (SELECT DISTINCT grp, topic, key FROM dead WHERE parked > 0) AS d
CROSS JOIN {p:records} AS along INDEXED BY {p:parked}
	ON along.grp IS d.grp AND along.topic = d.topic AND along.key = d.key AND along.parked > 0`

	// sqlRequeue makes the records due by time (stage 3), so that those that have
	// been due for longer go first where no order is wanted.
	sqlRequeue = `UPDATE {p:records} SET status = 'pending', stage = 3, available_at = ?2, next_at = ?2,
	attempts = 0, expiries = 0, expires_at = NULL, parked = 0
WHERE seq IN (SELECT value FROM json_each(?1)) AND status = 'dead'`
)

// Get returns one record. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	var found *outmill.Record
	err := s.read(ctx, "get", func(ctx context.Context, t *txn) error {
		records, err := t.records(ctx, sqlGet, id.String())
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return outmill.ErrNotFound
		}
		found = records[0]
		return nil
	})
	return found, err
}

// Delete removes records, whatever their status. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "delete", s.usable(ctx))
	}
	var deleted int
	err := s.writeSteps(ctx, "delete", func(ctx context.Context, t *txn) error {
		seqs, err := t.seqs(ctx, sqlSeqsOf, idList(ids))
		if err != nil {
			return err
		}
		if err := t.openLanes(ctx, seqs); err != nil {
			return err
		}
		if err := t.moveSteps(ctx, isDead, sqlOpenStepsOf, seqList(seqs)); err != nil {
			return err
		}
		deleted, err = t.exec(ctx, sqlDelete, seqList(seqs))
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// Requeue makes dead records pending again. See outmill.Inspector.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "requeue", s.usable(ctx))
	}
	var requeued int
	err := s.write(ctx, "requeue", func(ctx context.Context, t *txn) error {
		seqs, err := t.seqs(ctx, sqlDeadOf, idList(ids))
		if err != nil {
			return err
		}
		if err := t.moveSteps(ctx, isRequeued, sqlStepsOf, seqList(seqs)); err != nil {
			return err
		}
		requeued, err = t.exec(ctx, sqlRequeue, seqList(seqs), t.now)
		return err
	})
	if err != nil {
		return 0, err
	}
	if requeued > 0 {
		s.waker.bell.Ring()
	}
	return requeued, nil
}

func idList(ids []outmill.WorkItemID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return textList(texts)
}
