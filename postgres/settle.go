package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// A lease stands where the record is leased, by the owner, under the claim
// number. Leases of one owner and one claim number, nearly always all of a
// call, are one list of ids; the owner is $2 and the number $3.
const standing = `id = ANY ($1::text[]::uuid[]) AND stage = 4 AND owner = $2::text::uuid AND claims = $3::integer`

// dueAsBefore puts a record that is due back where claims take the oldest due
// first: the line is in the order of the appends, so it is not for records that
// became due later.
const dueAsBefore = `stage = CASE WHEN next_at > created_at THEN 2 ELSE 0 END,
	available_at = CASE WHEN next_at > created_at THEN next_at END, owner = NULL`

const (
	sqlDeleteAcked = `WITH gone AS (DELETE FROM {p:records} WHERE ` + standing + ` RETURNING grp, topic, key)
` + openLanesOf

	sqlProcess = `WITH gone AS (UPDATE {p:records}
	SET stage = 6, available_at = NULL, owner = NULL, processed_at = statement_timestamp(), processed_by = owner
	WHERE ` + standing + ` RETURNING grp, topic, key)
` + openLanesOf

	sqlRelease = `WITH gone AS (UPDATE {p:records} SET ` + dueAsBefore + ` WHERE ` + standing + ` RETURNING grp, topic, key)
` + openLanesOf

	sqlExtend = `UPDATE {p:records} SET available_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
WHERE ` + standing + ` RETURNING id::text`

	// leases are those that stand, each with what its statement needs: $3 the
	// claim numbers, $4 a number and $5 a text for each.
	leases = `leases AS MATERIALIZED (
	SELECT r.tid, j.number, j.text FROM unnest($1::text[], $3::bigint[], $4::bigint[], $5::text[]) AS j (id, claim, number, text)
	CROSS JOIN LATERAL (SELECT ctid AS tid FROM {p:records}
		WHERE id = j.id::uuid AND stage = 4 AND owner = $2::text::uuid AND claims = j.claim FOR UPDATE) AS r)`

	sqlAbandon = `WITH ` + leases + `,
gone AS (UPDATE {p:records} AS r SET stage = 2, owner = NULL, expiries = 0, attempts = attempts + 1, last_error = l.text,
		available_at = statement_timestamp() + l.number * interval '1 microsecond', next_at = statement_timestamp() + l.number * interval '1 microsecond'
	FROM leases AS l WHERE r.ctid = l.tid RETURNING r.grp, r.topic, r.key)
` + openLanesOf

	sqlSnooze = `WITH ` + leases + `,
gone AS (UPDATE {p:records} AS r SET stage = 2, owner = NULL, expiries = 0,
		available_at = statement_timestamp() + l.number * interval '1 microsecond', next_at = statement_timestamp() + l.number * interval '1 microsecond'
	FROM leases AS l WHERE r.ctid = l.tid RETURNING r.grp, r.topic, r.key)
` + openLanesOf

	// sqlFail also parks what is behind a record whose number is 1 ($6 says why).
	// It leaves alone what is leased: a claim parks it if it comes back.
	sqlFail = `WITH ` + leases + `,
gone AS (UPDATE {p:records} AS r SET stage = 7, available_at = NULL, owner = NULL, last_error = l.text, parked = l.number = 1 AND r.key <> ''
	FROM leases AS l WHERE r.ctid = l.tid RETURNING r.grp, r.topic, r.key, r.seq, r.parked),
behind AS (UPDATE {p:records} SET stage = 7, available_at = NULL, parked = true, last_error = $6::text
	WHERE ctid = ANY (ARRAY(SELECT b.ctid FROM gone CROSS JOIN LATERAL (SELECT ctid FROM {p:records}
		WHERE grp = gone.grp AND topic = gone.topic AND key = gone.key AND key <> '' AND stage < 6 AND stage <> 4 AND seq > gone.seq) AS b
		WHERE gone.parked)) AND stage < 6 AND stage <> 4)
` + openLanesOf
)

// sameLeases are the leases of one owner under one claim number.
type sameLeases struct {
	owner outmill.OwnerToken
	claim int
	ids   []string
}

func sorted(leases []outmill.Lease) []*sameLeases {
	type key struct {
		owner outmill.OwnerToken
		claim int
	}
	var list []*sameLeases
	known := map[key]*sameLeases{}
	for _, l := range leases {
		k := key{l.Owner, l.Claim}
		same := known[k]
		if same == nil {
			same = &sameLeases{owner: l.Owner, claim: l.Claim}
			known[k] = same
			list = append(list, same)
		}
		same.ids = append(same.ids, l.ID.String())
	}
	return list
}

// settle runs a statement on the leases, in one round trip.
func (s *Store) settle(ctx context.Context, operation, template string, leases []outmill.Lease) error {
	if len(leases) == 0 {
		return s.explain(ctx, operation, errors.Join(s.ready(ctx)))
	}
	var steps []step
	for _, same := range sorted(leases) {
		steps = append(steps, step{template: template, args: []any{same.ids, same.owner.String(), same.claim}})
	}
	return s.writeAll(ctx, operation, steps...)
}

// Ack makes the records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, leases []outmill.Lease) error {
	if s.config.Retain > 0 {
		return s.settle(ctx, "ack", sqlProcess, leases)
	}
	return s.settle(ctx, "ack", sqlDeleteAcked, leases)
}

// Release gives the records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	err := s.settle(ctx, "release", sqlRelease, leases)
	if err == nil && len(leases) > 0 {
		s.wake()
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
	if len(leases) == 0 {
		return nil, s.explain(ctx, operation, s.ready(ctx))
	}
	var extended []outmill.Lease
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		extended = nil
		var steps []step
		for _, same := range sorted(leases) {
			steps = append(steps, step{
				template: sqlExtend,
				args:     []any{same.ids, same.owner.String(), same.claim, ceilMicros(lease)},
				row: func(scan func(...any) error) error {
					var id string
					l := outmill.Lease{Owner: same.owner, Claim: same.claim}
					if err := scan(&id); err != nil {
						return err
					}
					err := l.ID.Scan(id)
					extended = append(extended, l)
					return err
				},
			})
		}
		return t.finish(ctx, steps...)
	})
	if err != nil {
		return nil, err
	}
	return extended, nil
}

// settling is a lease, and what its statement needs besides.
type settling struct {
	lease  outmill.Lease
	number int64
	text   string
}

// settleEach runs a statement on leases that each have values of their own.
func (s *Store) settleEach(ctx context.Context, operation, template string, items []settling, more ...any) error {
	if len(items) == 0 {
		return s.explain(ctx, operation, s.ready(ctx))
	}
	var owners []outmill.OwnerToken
	byOwner := map[outmill.OwnerToken][]settling{}
	for _, item := range items {
		owner := item.lease.Owner
		if byOwner[owner] == nil {
			owners = append(owners, owner)
		}
		byOwner[owner] = append(byOwner[owner], item)
	}
	var steps []step
	for _, owner := range owners {
		var ids, texts []string
		var claims, numbers []int64
		for _, item := range byOwner[owner] {
			ids, claims = append(ids, item.lease.ID.String()), append(claims, int64(item.lease.Claim))
			numbers, texts = append(numbers, item.number), append(texts, item.text)
		}
		steps = append(steps, step{template: template, args: append([]any{ids, owner.String(), claims, numbers, texts}, more...)})
	}
	return s.writeAll(ctx, operation, steps...)
}

// Abandon makes the records due again after their delay. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, abandonments []outmill.Abandonment) error {
	items := make([]settling, len(abandonments))
	atOnce := false
	for i, a := range abandonments {
		items[i] = settling{a.Lease, ceilMicros(max(a.Delay, 0)), outmill.CleanError(a.Err)}
		atOnce = atOnce || a.Delay <= 0
	}
	return s.giveBack(ctx, "abandon", sqlAbandon, items, atOnce)
}

// Snooze makes the records due again after their delay, uncounted. See
// outmill.Queue.
func (s *Store) Snooze(ctx context.Context, snoozings []outmill.Snoozing) error {
	items := make([]settling, len(snoozings))
	atOnce := false
	for i, z := range snoozings {
		items[i] = settling{lease: z.Lease, number: ceilMicros(max(z.Delay, 0))}
		atOnce = atOnce || z.Delay <= 0
	}
	return s.giveBack(ctx, "snooze", sqlSnooze, items, atOnce)
}

// giveBack makes the records pending again, and wakes readers if some are due
// at once.
func (s *Store) giveBack(ctx context.Context, operation, template string, items []settling, atOnce bool) error {
	err := s.settleEach(ctx, operation, template, items)
	if err == nil && atOnce {
		s.wake()
	}
	return err
}

// Fail makes the records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, failures []outmill.Failure) error {
	items := make([]settling, len(failures))
	for i, f := range failures {
		items[i] = settling{lease: f.Lease, text: outmill.CleanError(f.Err)}
		if f.Park {
			items[i].number = 1
		}
	}
	return s.settleEach(ctx, "fail", sqlFail, items, parkedError)
}
