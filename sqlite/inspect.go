package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/outmill/outmill"
)

const (
	defaultStatsLimit = 10_000
	defaultListLimit  = 100
)

const (
	sqlGet = `SELECT ` + recordColumns + ` FROM {p:records} WHERE id = ?1`

	sqlSeqOf = `SELECT seq FROM {p:records} WHERE id = ?1`
	// sqlSeqBefore stands in for a record that is gone: ids ascend in time.
	sqlSeqBefore = `SELECT seq FROM {p:records} WHERE id < ?1 ORDER BY id DESC LIMIT 1`

	sqlSeqsOf = `SELECT r.seq FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value`

	sqlDelete = `DELETE FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1))`

	sqlDeadOf = `SELECT r.seq, r.grp, r.topic, r.key, r.parked FROM json_each(?1) AS j
CROSS JOIN {p:records} AS r ON r.id = j.value WHERE r.status = 'dead'`

	sqlParkedOfKey = `SELECT seq FROM {p:records} INDEXED BY {p:parked}
WHERE grp IS ?1 AND topic = ?2 AND key = ?3 AND parked > 0`
	sqlParkedOfTopic = `SELECT seq FROM {p:records} INDEXED BY {p:parked}
WHERE grp IS ?1 AND topic = ?2 AND parked = 2 AND parked > 0`
	sqlAllParkedOfTopic = `SELECT seq FROM {p:records} INDEXED BY {p:parked} WHERE grp IS ?1 AND topic = ?2 AND parked > 0`

	// sqlRequeue makes the records due by time (stage 3), so that those that have
	// been due for longer go first where no order is wanted.
	sqlRequeue = `UPDATE {p:records} SET status = 'pending', stage = 3, available_at = ?2, due_at = ?2,
	attempts = 0, expiries = 0, expires_at = NULL, parked = 0
WHERE seq IN (SELECT value FROM json_each(?1)) AND status = 'dead'`

	sqlList = `SELECT ` + recordColumns + ` FROM {p:records}
WHERE seq > ?1 AND (?2 OR grp = ?3) AND (?4 = '' OR topic = ?4) AND (?5 = '' OR status = ?5) ORDER BY seq LIMIT ?6`
)

// Get returns one record. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	var found *outmill.Record
	err := s.read(ctx, "get", func(ctx context.Context, t *txn) error {
		rows, err := t.query(ctx, sqlGet, id.String())
		if err != nil {
			return err
		}
		records, _, err := scanRecords(rows)
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

// List returns records in the order in which they were appended. See
// outmill.Inspector. Where query.After is gone by now, the list goes on behind
// the record with the greatest id before it.
func (s *Store) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	if query.Limit < 0 {
		return nil, s.explain(ctx, operation, invalid("ListQuery.Limit is %d: want 0 (100) or more", query.Limit))
	}
	if query.Status != "" {
		if _, err := outmill.ParseStatus(string(query.Status)); err != nil {
			return nil, s.explain(ctx, operation, invalid("ListQuery.Status: %w", err))
		}
	}
	var found []*outmill.Record
	err := s.read(ctx, operation, func(ctx context.Context, t *txn) error {
		after, err := t.placeAfter(ctx, query.After)
		if err != nil {
			return err
		}
		group := ""
		if query.Group != nil {
			group = *query.Group
		}
		rows, err := t.query(ctx, sqlList, after, query.Group == nil, group, query.Topic, string(query.Status), cmp.Or(query.Limit, defaultListLimit))
		if err != nil {
			return err
		}
		found, _, err = scanRecords(rows)
		return err
	})
	return found, err
}

func (t *txn) placeAfter(ctx context.Context, id outmill.WorkItemID) (int64, error) {
	if id.IsZero() {
		return 0, nil
	}
	var place int64
	for _, template := range []string{sqlSeqOf, sqlSeqBefore} {
		rows, err := t.query(ctx, template, id.String())
		if err != nil {
			return 0, err
		}
		if found, err := scanOne(rows, &place); err != nil || found {
			return place, err
		}
	}
	return 0, nil
}

// Delete removes records, whatever their status. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	var deleted int
	err := s.write(ctx, "delete", func(ctx context.Context, t *txn) error {
		rows, err := t.query(ctx, sqlSeqsOf, idList(ids))
		if err != nil {
			return err
		}
		seqs, err := scanSeqs(rows)
		if err != nil {
			return err
		}
		if err := t.openLanes(ctx, seqs); err != nil {
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
		return 0, nil
	}
	var requeued int
	err := s.write(ctx, "requeue", func(ctx context.Context, t *txn) error {
		seqs, err := t.deadAndParkedAlong(ctx, ids)
		if err != nil {
			return err
		}
		requeued, err = t.exec(ctx, sqlRequeue, seqList(seqs), t.now)
		return err
	})
	if err != nil {
		return 0, err
	}
	if requeued > 0 {
		s.waker.wake()
	}
	return requeued, nil
}

type deadRecord struct {
	seq        int64
	group      sql.NullString
	topic, key string
	parked     int
}

func (t *txn) deadAndParkedAlong(ctx context.Context, ids []outmill.WorkItemID) ([]int64, error) {
	dead, err := t.dead(ctx, ids)
	if err != nil {
		return nil, err
	}
	var seqs []int64
	for _, r := range dead {
		seqs = append(seqs, r.seq)
		along, err := t.parkedAlong(ctx, r)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, along...)
	}
	slices.Sort(seqs)
	return slices.Compact(seqs), nil
}

// parkedAlong: a record that went dead with its whole topic brings the topic
// back, any other parked record its key, and what went dead with the topic
// because of it.
func (t *txn) parkedAlong(ctx context.Context, r deadRecord) ([]int64, error) {
	switch {
	case r.parked == 0:
		return nil, nil
	case r.parked == parkedWithTopic:
		return t.seqs(ctx, sqlAllParkedOfTopic, r.group, r.topic)
	}
	withTopic, err := t.seqs(ctx, sqlParkedOfTopic, r.group, r.topic)
	if err != nil || r.key == "" {
		return withTopic, err
	}
	withKey, err := t.seqs(ctx, sqlParkedOfKey, r.group, r.topic, r.key)
	return append(withTopic, withKey...), err
}

func (t *txn) seqs(ctx context.Context, template string, args ...any) ([]int64, error) {
	rows, err := t.query(ctx, template, args...)
	if err != nil {
		return nil, err
	}
	return scanSeqs(rows)
}

func (t *txn) dead(ctx context.Context, ids []outmill.WorkItemID) ([]deadRecord, error) {
	rows, err := t.query(ctx, sqlDeadOf, idList(ids))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []deadRecord
	for rows.Next() {
		var r deadRecord
		if err := rows.Scan(&r.seq, &r.group, &r.topic, &r.key, &r.parked); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

func idList(ids []outmill.WorkItemID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return textList(texts)
}
