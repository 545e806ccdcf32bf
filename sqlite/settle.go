package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite/internal/turnstile"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// standing selects the valid leases: ?1 is an object of id to [claim, …], ?2 the owner. The
// list comes first, so that SQLite never scans the table.
const standing = ` FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.key
	WHERE r.stage = 4 AND r.owner = ?2 AND r.claims = j.value ->> 0`

// dueAsBefore puts a due record back among those of which claims take the longest due first.
// The ready records are in the order of the appends, so records that became due later do not
// belong there.
const dueAsBefore = `stage = iif(next_at > created_at, 2, 0), available_at = iif(next_at > created_at, next_at, NULL)`

const (
	sqlStanding = `SELECT r.seq` + standing

	sqlDeleteAcked = `DELETE FROM {p:records} WHERE seq IN (SELECT r.seq` + standing + `)`

	sqlProcess = `UPDATE {p:records} SET status = 'processed', stage = 6, available_at = NULL, owner = '',
	processed_at = ?3, processed_by = nullif(?4, '')
WHERE seq IN (SELECT r.seq` + standing + `)`

	sqlRelease = `UPDATE {p:records} SET status = 'pending', ` + dueAsBefore + `, owner = ''
WHERE seq IN (SELECT r.seq` + standing + `)`

	sqlExtend = `UPDATE {p:records} SET available_at = ?3 WHERE seq IN (SELECT r.seq` + standing + `) RETURNING id, claims`

	// Values that differ between records are in the lease: [claim, delay, error] or [claim,
	// park, error].
	sqlAbandon = `WITH l AS MATERIALIZED (SELECT r.seq AS leased, ?3 + (j.value ->> 1) AS until, j.value ->> 2 AS error` + standing + `)
UPDATE {p:records} SET status = 'pending', stage = 2, owner = '', expiries = 0, attempts = attempts + 1,
	available_at = l.until, next_at = l.until, last_error = nullif(l.error, '')
FROM l WHERE seq = l.leased`

	sqlSnooze = `WITH l AS MATERIALIZED (SELECT r.seq AS leased, ?3 + (j.value ->> 1) AS until` + standing + `)
UPDATE {p:records} SET status = 'pending', stage = 2, owner = '', expiries = 0,
	available_at = l.until, next_at = l.until
FROM l WHERE seq = l.leased`

	// sqlJoinsWaitedFor returns the joins that the records will finish.
	sqlJoinsWaitedFor = `SELECT r.waits_for FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.key
	WHERE r.waits_for IS NOT NULL AND r.stage = 2`

	sqlFail = `WITH l AS MATERIALIZED (SELECT r.seq AS leased, j.value ->> 1 AS park, j.value ->> 2 AS error` + standing + `)
UPDATE {p:records} SET status = 'dead', stage = 6, available_at = NULL, owner = '',
	parked = l.park AND key <> '', last_error = nullif(l.error, '')
FROM l WHERE seq = l.leased
RETURNING seq, grp, topic, key, parked`

	// sqlBehind skips leased records: a claim parks them if they are given back.
	sqlBehind = `SELECT seq FROM {p:records} INDEXED BY {p:by_key}
WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND key <> '' AND seq > ?4 AND status = 'pending' ORDER BY seq LIMIT ?5`
)

// settlement has the leases of one owner.
type settlement struct {
	owner string
	// leases is the statement's object of id to [claim, …]. An id may occur twice, with
	// different claims.
	leases string
}

// settlements sorts leases by owner; usually there is one owner. values returns the further
// values of the statement for a lease; nil if there are none.
func settlements(items []outmill.Settlement, values func(outmill.Settlement) []any) ([]settlement, error) {
	var owners []outmill.OwnerToken
	objects := map[outmill.OwnerToken][]byte{}
	for _, item := range items {
		list := []any{item.Lease.Claim}
		if values != nil {
			list = append(list, values(item)...)
		}
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		object, known := objects[item.Lease.Owner]
		separator := byte(',')
		if !known {
			owners = append(owners, item.Lease.Owner)
			separator = '{'
		}
		object = append(object, separator, '"')
		object = append(object, item.Lease.ID.String()...)
		object = append(object, '"', ':')
		objects[item.Lease.Owner] = append(object, text...)
	}
	list := make([]settlement, len(owners))
	for i, owner := range owners {
		list[i] = settlement{owner.String(), string(objects[owner]) + "}"}
	}
	return list, nil
}

// settle runs work for the leases of each owner in one transaction, which may run again.
func (s *Store) settle(ctx context.Context, operation string, items []outmill.Settlement, values func(outmill.Settlement) []any,
	work func(ctx context.Context, t *txn, of settlement) error) error {
	list, err := settlements(items, values)
	if err != nil || len(list) == 0 {
		return s.explain(ctx, operation, errors.Join(err, s.usable(ctx)))
	}
	return s.writeSteps(ctx, operation, func(ctx context.Context, t *txn) error {
		for _, of := range list {
			if err := t.openLanesOf(ctx, of); err != nil {
				return err
			}
			if err := work(ctx, t, of); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *txn) openLanesOf(ctx context.Context, of settlement) error {
	if !t.lanes {
		return nil
	}
	seqs, err := t.seqs(ctx, sqlStanding, of.leases, of.owner)
	if err != nil {
		return err
	}
	return t.openLanes(ctx, seqs)
}

// Ack makes the records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack"
	if err := storekit.CheckWorker(by); err != nil {
		return s.explain(ctx, operation, err)
	}
	return s.settle(ctx, operation, storekit.Bare(leases), nil, func(ctx context.Context, t *txn, of settlement) error {
		_, err := t.ack(ctx, by, of)
		return err
	})
}

// ack returns how many of the leases were valid.
func (t *txn) ack(ctx context.Context, by string, of settlement) (int, error) {
	if err := t.moveSteps(ctx, isAcked, sqlStepsStanding, of.leases, of.owner); err != nil {
		return 0, err
	}
	if t.s.config.Retain > 0 {
		return t.exec(ctx, sqlProcess, of.leases, of.owner, t.now, by)
	}
	return t.exec(ctx, sqlDeleteAcked, of.leases, of.owner)
}

// Abandon makes the records due again after their delay. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, settlements []outmill.Settlement) error {
	return s.giveBack(ctx, "abandon", sqlAbandon, storekit.ForAbandon(settlements), func(z outmill.Settlement) []any {
		return []any{sqlkit.CeilMicros(z.Delay), z.Err}
	})
}

// Snooze makes the records due again after their delay, uncounted. See
// outmill.Queue.
func (s *Store) Snooze(ctx context.Context, settlements []outmill.Settlement) error {
	return s.giveBack(ctx, "snooze", sqlSnooze, storekit.ForSnooze(settlements), func(z outmill.Settlement) []any {
		return []any{sqlkit.CeilMicros(z.Delay)}
	})
}

// Release gives the records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	return s.giveBack(ctx, "release", sqlRelease, storekit.Bare(leases), nil)
}

// giveBack makes the records pending again, and wakes readers if some are due
// at once.
func (s *Store) giveBack(ctx context.Context, operation, template string, items []outmill.Settlement,
	values func(outmill.Settlement) []any) error {
	err := s.settle(ctx, operation, items, values, func(ctx context.Context, t *txn, of settlement) error {
		if _, err := t.exec(ctx, template, of.leases, of.owner, t.now); err != nil || template != sqlSnooze {
			return err
		}
		return t.hurryOf(ctx, of)
	})
	if err == nil && storekit.SomeAtOnce(items) {
		s.waker.notifier.Notify()
	}
	return err
}

// hurryOf makes records due that were snoozed because their join was not decided, if it is
// decided now.
func (t *txn) hurryOf(ctx context.Context, of settlement) error {
	waitedFor, err := t.texts(ctx, sqlJoinsWaitedFor, of.leases)
	for _, id := range waitedFor {
		if err == nil {
			err = t.hurry(ctx, id)
		}
	}
	return err
}

// Extend sets the end of the valid leases, and returns these leases. See outmill.Queue.
func (s *Store) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	if err := storekit.CheckExtend(lease); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	extended := map[string][]outmill.Lease{}
	ctx = turnstile.Urgently(ctx)
	err := s.settle(ctx, operation, storekit.Bare(leases), nil, func(ctx context.Context, t *txn, of settlement) (err error) {
		extended[of.owner], err = t.extend(ctx, of, lease)
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.Concat(slices.Collect(maps.Values(extended))...), nil
}

func (t *txn) extend(ctx context.Context, of settlement, lease time.Duration) ([]outmill.Lease, error) {
	return list(ctx, t, func(rows *sql.Rows, l *outmill.Lease) error {
		return errors.Join(rows.Scan(&l.ID, &l.Claim), l.Owner.Scan(of.owner))
	}, sqlExtend, of.leases, of.owner, t.after(lease))
}

// Fail makes the records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, settlements []outmill.Settlement) error {
	values := func(z outmill.Settlement) []any { return []any{z.Park, z.Err} }
	return s.settle(ctx, "fail", storekit.ForFail(settlements), values, func(ctx context.Context, t *txn, of settlement) error {
		if err := t.moveSteps(ctx, isDead, sqlStepsStanding, of.leases, of.owner); err != nil {
			return err
		}
		failed, err := t.fail(ctx, of)
		if err != nil {
			return err
		}
		// The others are parked when a claim comes to them.
		left := s.atOnce.Park()
		for _, r := range failed {
			if !r.parked || left <= 0 {
				continue
			}
			seqs, err := t.seqs(ctx, sqlBehind, r.group, r.topic, r.key, r.seq, left)
			if err != nil {
				return err
			}
			if err := t.park(ctx, seqs); err != nil {
				return err
			}
			left -= len(seqs)
		}
		return nil
	})
}

// failedRecord is a failed record. It may park its key.
type failedRecord struct {
	seq               int64
	group, topic, key string
	parked            bool
}

func (t *txn) fail(ctx context.Context, of settlement) ([]failedRecord, error) {
	return list(ctx, t, func(rows *sql.Rows, r *failedRecord) error {
		return rows.Scan(&r.seq, &r.group, &r.topic, &r.key, &r.parked)
	}, sqlFail, of.leases, of.owner)
}
