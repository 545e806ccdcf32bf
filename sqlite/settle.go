package sqlite

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// standing picks the leases that stand: ?1 is an object of id to [claim, …],
// ?2 the owner. The list comes first, so that it is never a scan.
const standing = ` FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.key
	WHERE r.stage = 4 AND r.owner = ?2 AND r.claims = j.value ->> 0`

// dueAsBefore puts a record that is due back where claims take the oldest due
// first: the line is in the order of the appends, so it is not for records that
// became due later.
const dueAsBefore = `stage = iif(next_at > created_at, 2, 0), available_at = iif(next_at > created_at, next_at, NULL)`

const (
	sqlStanding = `SELECT r.seq` + standing

	sqlDeleteAcked = `DELETE FROM {p:records} WHERE seq IN (SELECT r.seq` + standing + `)`

	sqlProcess = `UPDATE {p:records} SET status = 'processed', stage = 6, available_at = NULL, owner = '',
	processed_at = ?3, processed_by = ?2
WHERE seq IN (SELECT r.seq` + standing + `)`

	sqlRelease = `UPDATE {p:records} SET status = 'pending', ` + dueAsBefore + `, owner = ''
WHERE seq IN (SELECT r.seq` + standing + `)`

	sqlExtend = `UPDATE {p:records} SET available_at = ?3 WHERE seq IN (SELECT r.seq` + standing + `) RETURNING id, claims`

	// What differs from record to record comes with the lease:
	// [claim, time, error] or [claim, park, error].
	sqlAbandon = `WITH l AS MATERIALIZED (SELECT r.seq AS leased, j.value ->> 1 AS until, j.value ->> 2 AS error` + standing + `)
UPDATE {p:records} SET status = 'pending', stage = 2, owner = '', expiries = 0, attempts = attempts + 1,
	available_at = l.until, next_at = l.until, last_error = l.error
FROM l WHERE seq = l.leased`

	sqlSnooze = `WITH l AS MATERIALIZED (SELECT r.seq AS leased, j.value ->> 1 AS until` + standing + `)
UPDATE {p:records} SET status = 'pending', stage = 2, owner = '', expiries = 0,
	available_at = l.until, next_at = l.until
FROM l WHERE seq = l.leased`

	sqlFail = `WITH l AS MATERIALIZED (SELECT r.seq AS leased, j.value ->> 1 AS park, j.value ->> 2 AS error` + standing + `)
UPDATE {p:records} SET status = 'dead', stage = 6, available_at = NULL, owner = '',
	parked = l.park AND key <> '', last_error = l.error
FROM l WHERE seq = l.leased
RETURNING seq, grp, topic, key, parked`

	// sqlParkBehind leaves alone what is leased: a claim parks it if it comes
	// back.
	sqlParkBehind = `UPDATE {p:records} SET status = 'dead', stage = 6, available_at = NULL, parked = 1, last_error = ?5
WHERE seq IN (SELECT seq FROM {p:records} INDEXED BY {p:by_key}
	WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND key <> '' AND seq > ?4 AND status = 'pending')`
)

// settlement is what becomes of the leases of one owner.
type settlement struct {
	owner string
	// leases is the statement's object of id to [claim, …], without the last
	// brace. An id may come twice, with different claims.
	leases []byte
}

func (s *settlement) add(id outmill.WorkItemID, values []any) error {
	list, err := json.Marshal(values)
	if err != nil {
		return err
	}
	separator := byte(',')
	if len(s.leases) == 0 {
		separator = '{'
	}
	s.leases = append(s.leases, separator, '"')
	s.leases = append(s.leases, id.String()...)
	s.leases = append(s.leases, '"', ':')
	s.leases = append(s.leases, list...)
	return nil
}

func (s *settlement) object() string { return string(s.leases) + "}" }

// settlements sorts leases by owner; more returns what the statement needs
// besides the claim number.
func settlements[T any](items []T, lease func(T) outmill.Lease, more func(T) []any) ([]*settlement, error) {
	var list []*settlement
	byOwner := map[outmill.OwnerToken]*settlement{}
	for _, item := range items {
		l := lease(item)
		of := byOwner[l.Owner]
		if of == nil {
			of = &settlement{owner: l.Owner.String()}
			byOwner[l.Owner] = of
			list = append(list, of)
		}
		if err := of.add(l.ID, append([]any{l.Claim}, more(item)...)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func self(l outmill.Lease) outmill.Lease { return l }

func nothing() {}

func nothingMore(*txn, outmill.Lease) []any { return nil }

// settle runs work for the leases of each owner in one transaction. If that
// has to be repeated, reset comes first again.
func settle[T any](ctx context.Context, s *Store, operation string, items []T, lease func(T) outmill.Lease,
	more func(*txn, T) []any, reset func(), work func(ctx context.Context, t *txn, owner, leases string) error,
) error {
	if len(items) == 0 {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	return s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		reset()
		list, err := settlements(items, lease, func(item T) []any { return more(t, item) })
		if err != nil {
			return err
		}
		for _, each := range list {
			leases := each.object()
			if err := t.openLanesOf(ctx, each.owner, leases); err != nil {
				return err
			}
			if err := work(ctx, t, each.owner, leases); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *txn) openLanesOf(ctx context.Context, owner, leases string) error {
	if !t.lanes {
		return nil
	}
	rows, err := t.query(ctx, sqlStanding, leases, owner)
	if err != nil {
		return err
	}
	seqs, err := scanSeqs(rows)
	if err != nil {
		return err
	}
	return t.openLanes(ctx, seqs)
}

// Ack makes the records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, leases []outmill.Lease) error {
	return settle(ctx, s, "ack", leases, self, nothingMore, nothing,
		func(ctx context.Context, t *txn, owner, list string) error {
			if s.config.Retain > 0 {
				_, err := t.exec(ctx, sqlProcess, list, owner, t.now)
				return err
			}
			_, err := t.exec(ctx, sqlDeleteAcked, list, owner)
			return err
		})
}

// Abandon makes the records due again after their delay. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, abandonments []outmill.Abandonment) error {
	err := settle(ctx, s, "abandon", abandonments,
		func(a outmill.Abandonment) outmill.Lease { return a.Lease },
		func(t *txn, a outmill.Abandonment) []any { return []any{t.after(a.Delay), outmill.CleanError(a.Err)} },
		nothing,
		func(ctx context.Context, t *txn, owner, list string) error {
			_, err := t.exec(ctx, sqlAbandon, list, owner)
			return err
		})
	if err == nil && slices.ContainsFunc(abandonments, func(a outmill.Abandonment) bool { return a.Delay <= 0 }) {
		s.waker.wake()
	}
	return err
}

// Snooze makes the records due again after their delay, uncounted. See
// outmill.Queue.
func (s *Store) Snooze(ctx context.Context, snoozings []outmill.Snoozing) error {
	err := settle(ctx, s, "snooze", snoozings,
		func(z outmill.Snoozing) outmill.Lease { return z.Lease },
		func(t *txn, z outmill.Snoozing) []any { return []any{t.after(z.Delay)} },
		nothing,
		func(ctx context.Context, t *txn, owner, list string) error {
			_, err := t.exec(ctx, sqlSnooze, list, owner)
			return err
		})
	if err == nil && slices.ContainsFunc(snoozings, func(z outmill.Snoozing) bool { return z.Delay <= 0 }) {
		s.waker.wake()
	}
	return err
}

// Release gives the records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	var released int
	err := settle(ctx, s, "release", leases, self, nothingMore, func() { released = 0 },
		func(ctx context.Context, t *txn, owner, list string) error {
			n, err := t.exec(ctx, sqlRelease, list, owner)
			released += n
			return err
		})
	if err == nil && released > 0 {
		s.waker.wake()
	}
	return err
}

// Extend sets the end of the leases that still stand, and returns these. See
// outmill.Queue.
func (s *Store) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	if lease <= 0 {
		return nil, s.explain(ctx, operation, invalid("Extend: lease is %s: want more than 0", lease))
	}
	var held []outmill.Lease
	err := settle(ctx, s, operation, leases, self, nothingMore, func() { held = nil },
		func(ctx context.Context, t *txn, owner, list string) error {
			extended, err := t.extend(ctx, owner, list, lease)
			held = append(held, extended...)
			return err
		})
	if err != nil {
		return nil, err
	}
	return held, nil
}

func (t *txn) extend(ctx context.Context, owner, list string, lease time.Duration) ([]outmill.Lease, error) {
	rows, err := t.query(ctx, sqlExtend, list, owner, t.after(lease))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var held []outmill.Lease
	for rows.Next() {
		var l outmill.Lease
		if err := rows.Scan(&l.ID, &l.Claim); err != nil {
			return nil, err
		}
		if err := l.Owner.Scan(owner); err != nil {
			return nil, err
		}
		held = append(held, l)
	}
	return held, rows.Err()
}

// Fail makes the records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, failures []outmill.Failure) error {
	return settle(ctx, s, "fail", failures,
		func(f outmill.Failure) outmill.Lease { return f.Lease },
		func(_ *txn, f outmill.Failure) []any { return []any{flag(f.Park), outmill.CleanError(f.Err)} },
		nothing,
		func(ctx context.Context, t *txn, owner, list string) error {
			parked, err := t.fail(ctx, owner, list)
			if err != nil {
				return err
			}
			for _, p := range parked {
				if err := t.parkBehind(ctx, p); err != nil {
					return err
				}
			}
			return nil
		})
}

// parkedRecord is a record that failed and takes its key along.
type parkedRecord struct {
	seq               int64
	group, topic, key string
}

func (t *txn) fail(ctx context.Context, owner, list string) ([]parkedRecord, error) {
	rows, err := t.query(ctx, sqlFail, list, owner)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var parked []parkedRecord
	for rows.Next() {
		var r parkedRecord
		var park bool
		if err := rows.Scan(&r.seq, &r.group, &r.topic, &r.key, &park); err != nil {
			return nil, err
		}
		if park {
			parked = append(parked, r)
		}
	}
	return parked, rows.Err()
}

func (t *txn) parkBehind(ctx context.Context, r parkedRecord) error {
	_, err := t.exec(ctx, sqlParkBehind, r.group, r.topic, r.key, r.seq, parkedError)
	return err
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
