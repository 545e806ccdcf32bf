package sqlite

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlGet = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r WHERE id = ?1`

	sqlSeqsOf = `SELECT r.seq FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value WHERE ?2 = '' OR r.status = ?2`

	sqlDelete = `DELETE FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlDeadOf = `SELECT r.seq FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value WHERE r.status = 'dead'`

	// sqlParkedKeys returns the keys with which the records were parked.
	sqlParkedKeys = `SELECT DISTINCT r.grp, r.topic, r.key FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value
WHERE r.status = 'dead' AND r.parked > 0 AND r.grp IS NOT NULL`

	sqlParkedOf = `SELECT seq FROM {p:records} INDEXED BY {p:parked} WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND parked > 0
		ORDER BY seq LIMIT ?4`

	// sqlRequeue makes the records due by time, so that without an order those that have been due
	// longest go first. They wait (stage 2), because a claim makes only some of them ready at a
	// time, and the others must not let a later record of their key pass.
	sqlRequeue = `UPDATE {p:records} SET status = 'pending', stage = iif(grp IS NULL, 3, 2), available_at = ?2, next_at = ?2,
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
	return s.delete(ctx, "", ids)
}

// delete deletes the records that have the status; "" is any.
func (s *Store) delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "delete", s.usable(ctx))
	}
	entry := storekit.NewAuditEntry(ctx, roles.AuditDelete, ids...)
	var deleted int
	err := s.writeSteps(ctx, "delete", func(ctx context.Context, t *txn) error {
		seqs, err := t.seqs(ctx, sqlSeqsOf, idList(ids), string(status))
		if err != nil {
			return err
		}
		if deleted, err = t.remove(ctx, seqs); err != nil {
			return err
		}
		return t.audit(ctx, entry, deleted)
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// remove deletes the records.
func (t *txn) remove(ctx context.Context, seqs []int64) (int, error) {
	if err := t.openLanes(ctx, seqs); err != nil {
		return 0, err
	}
	if err := t.moveSteps(ctx, isDead, sqlOpenStepsOf, seqList(seqs)); err != nil {
		return 0, err
	}
	return t.exec(ctx, sqlDelete, seqList(seqs))
}

// Requeue makes dead records pending again. See outmill.Inspector. It requeues a parked key in
// several transactions, its first records first.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (requeued int, err error) {
	if len(ids) == 0 {
		return 0, s.explain(ctx, "requeue", s.usable(ctx))
	}
	keys, due, err := s.parkedKeys(ctx, ids)
	if err != nil {
		return 0, err
	}
	defer func() {
		if requeued > 0 {
			s.waker.notifier.Notify()
		}
	}()
	entry := storekit.NewAuditEntry(ctx, roles.AuditRequeue, ids...)
	for _, k := range keys {
		n, err := s.requeueParked(ctx, entry, k, due)
		if requeued += n; err != nil {
			return requeued, err
		}
	}
	n, err := s.requeue(ctx, entry, due, sqlDeadOf, idList(ids))
	return requeued + n, err
}

// parkedKey is a key of a group's topic that has parked records.
type parkedKey struct{ group, topic, key string }

// parkedKeys also returns the time.
func (s *Store) parkedKeys(ctx context.Context, ids []outmill.WorkItemID) (keys []parkedKey, now int64, err error) {
	err = s.read(ctx, "requeue", func(ctx context.Context, t *txn) error {
		now = t.now
		keys, err = list(ctx, t, func(rows *sql.Rows, k *parkedKey) error {
			return rows.Scan(&k.group, &k.topic, &k.key)
		}, sqlParkedKeys, idList(ids))
		return err
	})
	return keys, now, err
}

// requeueParked requeues the records of a parked key. If claims park records again between two
// transactions, the next transaction requeues them too. The last one leaves nothing parked. All
// of them become due at one time, so that they become ready in the order of their places,
// whichever transaction requeued them.
func (s *Store) requeueParked(ctx context.Context, entry roles.AuditEntry, k parkedKey, due int64) (requeued int, err error) {
	for nth := 0; ; nth++ {
		n, err := s.requeue(ctx, entry, due, sqlParkedOf, k.group, k.topic, k.key, s.atOnce.Requeue(nth))
		if requeued += n; err != nil || n == 0 {
			return requeued, err
		}
	}
}

// requeue requeues the records that the query finds, in one transaction.
func (s *Store) requeue(ctx context.Context, entry roles.AuditEntry, due int64, query string, args ...any) (requeued int, err error) {
	err = s.write(ctx, "requeue", func(ctx context.Context, t *txn) error {
		seqs, err := t.seqs(ctx, query, args...)
		if err != nil {
			return err
		}
		if requeued, err = t.requeue(ctx, seqs, due); err != nil {
			return err
		}
		return t.audit(ctx, entry, requeued)
	})
	if err != nil {
		return 0, err
	}
	return requeued, nil
}

// requeue makes dead records pending and due at the time.
func (t *txn) requeue(ctx context.Context, seqs []int64, due int64) (int, error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	if err := t.moveSteps(ctx, isRequeued, sqlStepsOf, seqList(seqs)); err != nil {
		return 0, err
	}
	return t.exec(ctx, sqlRequeue, seqList(seqs), due)
}

func idList(ids []outmill.WorkItemID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return textList(texts)
}
