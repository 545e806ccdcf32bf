package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// A lease is valid if its record is leased by the owner under the claim number. The leases of
// one owner and one claim number, usually all leases of a call, are one list of ids; the owner
// is $2 and the number $3. Values that differ between records are an object of id to [number,
// text], $4. A joined list would leave the planner a choice, and it chooses badly.
const standing = `id = ANY ($1::text[]::uuid[]) AND stage + 0 = 4 AND owner = $2::text::uuid AND claims = $3::integer`

// dueAsBefore puts a due record back among those of which claims take the longest due first.
// The ready records are in the order of the appends, so records that became due later do not
// belong there.
const dueAsBefore = `stage = CASE WHEN next_at > created_at THEN 2 ELSE 0 END,
	available_at = CASE WHEN next_at > created_at THEN next_at END, owner = NULL`

// dueAfter makes a record due after the number of microseconds that $4 has for it.
const dueAfter = `(available_at, next_at) = (SELECT at, at FROM
		(SELECT statement_timestamp() + ($4::jsonb -> r.id::text ->> 0)::bigint * interval '1 microsecond' AS at) AS due)`

const (
	sqlDeleteAcked = `WITH gone AS (DELETE FROM {p:records} WHERE ` + standing + ` RETURNING grp, topic, key, step),
opened AS (` + openLanesOf + `)
` + noteAcked

	sqlProcess = `WITH gone AS (UPDATE {p:records}
	SET stage = 6, available_at = NULL, owner = NULL, processed_at = statement_timestamp(), processed_by = nullif($4::text, '')
	WHERE ` + standing + ` RETURNING grp, topic, key, step),
opened AS (` + openLanesOf + `)
` + noteAcked

	sqlRelease = `WITH gone AS (UPDATE {p:records} SET ` + dueAsBefore + ` WHERE ` + standing + ` RETURNING grp, topic, key)
` + openLanesOf

	sqlExtend = `UPDATE {p:records} SET available_at = statement_timestamp() + $4::bigint * interval '1 microsecond'
WHERE ` + standing + ` RETURNING id::text`

	sqlAbandon = `WITH gone AS (UPDATE {p:records} AS r SET stage = 2, owner = NULL, expiries = 0, attempts = r.attempts + 1,
		last_error = nullif($4::jsonb -> r.id::text ->> 1, ''),
		` + dueAfter + `
	WHERE ` + standing + ` RETURNING r.grp, r.topic, r.key)
` + openLanesOf

	sqlSnooze = `WITH gone AS (UPDATE {p:records} AS r SET stage = 2, owner = NULL, expiries = 0,
		` + dueAfter + `
	WHERE ` + standing + ` RETURNING r.grp, r.topic, r.key, r.waits_for),
opened AS (` + openLanesOf + `)
SELECT waits_for::text FROM gone WHERE waits_for IS NOT NULL`

	// sqlFail also parks the records behind a record whose number is 1, at most $6 in all; $5
	// is the reason. Claims park the others when they meet them, and records that are leased
	// now when they are given back. It skips records that a claim has locked, because the claim
	// locks them in another order, and both would wait for each other.
	sqlFail = `WITH gone AS (UPDATE {p:records} AS r SET stage = 7, available_at = NULL, owner = NULL,
		last_error = nullif($4::jsonb -> r.id::text ->> 1, ''), parked = $4::jsonb -> r.id::text ->> 0 = '1' AND r.key <> ''
	WHERE ` + standing + ` RETURNING r.grp, r.topic, r.key, r.seq, r.parked, r.step),
behind AS (UPDATE {p:records} SET stage = 7, available_at = NULL, paused_by = NULL, parked = true, last_error = $5::text
	WHERE id = ANY (ARRAY(SELECT b.id FROM gone CROSS JOIN LATERAL (SELECT id FROM {p:records}
		WHERE hashtextextended(key, hashtextextended(topic, 0)) = hashtextextended(gone.key, hashtextextended(gone.topic, 0))
		AND grp IS NOT DISTINCT FROM gone.grp AND topic IS NOT DISTINCT FROM gone.topic AND key IS NOT DISTINCT FROM gone.key
		AND key <> '' AND stage - 6 < 0 AND stage - 4 <> 0 AND seq > gone.seq LIMIT $6::bigint FOR UPDATE SKIP LOCKED) AS b
		WHERE gone.parked LIMIT $6::bigint)) AND stage + 0 NOT IN (4, 6, 7) RETURNING step),
opened AS (` + openLanesOf + `)
` + noteSteps + `FROM (SELECT 'd' AS how, step FROM gone UNION ALL SELECT 'd', step FROM behind) AS n
	WHERE step IS NOT NULL HAVING count(*) > 0`
)

// sameLeases are the leases of one owner under one claim number.
type sameLeases struct {
	owner  outmill.OwnerToken
	claim  int
	ids    []string
	values map[string][2]any
}

func sorted(items []outmill.Settlement) []*sameLeases {
	type key struct {
		owner outmill.OwnerToken
		claim int
	}
	var list []*sameLeases
	known := map[key]*sameLeases{}
	for _, item := range items {
		k := key{item.Lease.Owner, item.Lease.Claim}
		same := known[k]
		if same == nil {
			same = &sameLeases{owner: k.owner, claim: k.claim, values: map[string][2]any{}}
			known[k] = same
			list = append(list, same)
		}
		id := item.Lease.ID.String()
		same.ids = append(same.ids, id)
		same.values[id] = [2]any{numberOf(item), item.Err}
	}
	return list
}

// numberOf returns a delay in microseconds, or 1 for a record that parks its key.
func numberOf(z outmill.Settlement) int64 {
	if z.Park {
		return 1
	}
	return sqlkit.CeilMicros(z.Delay)
}

func (s *sameLeases) args() []any { return []any{s.ids, s.owner.String(), s.claim} }

// settle runs a statement on the leases, in one round trip. write is s.write or
// s.durably.
func (s *Store) settle(ctx context.Context, operation string, write writing, template string, leases []outmill.Lease, more ...any) error {
	steps, err := s.toRecords(ctx, leases)
	if err != nil {
		return err
	}
	for _, same := range sorted(storekit.Bare(leases)) {
		steps = append(steps, step{template: template, args: append(same.args(), more...)})
	}
	return s.settleAll(ctx, operation, write, steps)
}

// settleEach is settle for leases with different values. It is durable, like all calls that
// give records back. After such a call the owner handles later records of the key. If a crash
// undid the call, the records would still be leased to that owner, and would not block the key
// for it.
func (s *Store) settleEach(ctx context.Context, operation, template string, items []outmill.Settlement,
	row func(scan func(...any) error) error, more ...any) error {
	steps, err := s.toRecords(ctx, storekit.LeasesOf(items))
	if err != nil {
		return err
	}
	each, err := stepsFor(template, items, row, more...)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	return s.settleAll(ctx, operation, s.durably, append(steps, each...))
}

// stepsFor returns a step for the leases of each owner and claim number.
func stepsFor(template string, items []outmill.Settlement, row func(scan func(...any) error) error, more ...any) ([]step, error) {
	var steps []step
	for _, same := range sorted(items) {
		values, err := json.Marshal(same.values)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{template: template, args: append(append(same.args(), string(values)), more...), row: row})
	}
	return steps, nil
}

func (s *Store) settleAll(ctx context.Context, operation string, write writing, steps []step) error {
	if len(steps) == 0 {
		return s.explain(ctx, operation, s.ready(ctx))
	}
	return s.settleIn(ctx, operation, write, steps)
}

// Ack makes the records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack"
	if err := storekit.CheckWorker(by); err != nil {
		return s.explain(ctx, operation, err)
	}
	if s.config.Retain > 0 {
		return s.settle(ctx, operation, s.write, sqlProcess, leases, by)
	}
	logged, err := s.hasLog(ctx, operation)
	if err != nil {
		return err
	}
	if logged && len(leases) > 0 {
		return s.ackLog(ctx, leases)
	}
	return s.settle(ctx, operation, s.write, sqlDeleteAcked, leases)
}

// Release gives the records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	err := s.settle(ctx, "release", s.durably, sqlRelease, leases)
	if err == nil && len(leases) > 0 {
		s.wake()
	}
	return err
}

// Extend sets the end of the valid leases, and returns these leases. See outmill.Queue.
func (s *Store) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	if err := storekit.CheckExtend(lease); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	if len(leases) == 0 {
		return nil, s.explain(ctx, operation, s.ready(ctx))
	}
	if logged, err := s.hasLog(ctx, operation); err != nil {
		return nil, err
	} else if logged {
		return s.extendLog(ctx, lease, leases)
	}
	var extended []outmill.Lease
	pauses := s.lookAtPauses()
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		extended = nil
		return t.finish(ctx, append(extendSteps(lease, leases, &extended), pauses.step())...)
	})
	if err != nil {
		return nil, err
	}
	pauses.list()
	return extended, nil
}

// extendSteps returns the steps that extend leases of records and append the valid ones to the
// list.
func extendSteps(lease time.Duration, leases []outmill.Lease, into *[]outmill.Lease) []step {
	var steps []step
	for _, same := range sorted(storekit.Bare(leases)) {
		steps = append(steps, step{
			template: sqlExtend,
			args:     append(same.args(), sqlkit.CeilMicros(lease)),
			row: func(scan func(...any) error) error {
				var id string
				l := outmill.Lease{Owner: same.owner, Claim: same.claim}
				if err := scan(&id); err != nil {
					return err
				}
				err := l.ID.Scan(id)
				*into = append(*into, l)
				return err
			},
		})
	}
	return steps
}

// Abandon makes the records due again after their delay. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForAbandon(settlements)
	err := s.settleEach(ctx, "abandon", sqlAbandon, items, nil)
	if err == nil && storekit.SomeAtOnce(items) {
		s.wake()
	}
	return err
}

// Snooze makes the records due again after their delay, uncounted. See
// outmill.Queue.
func (s *Store) Snooze(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForSnooze(settlements)
	var waitedFor []outmill.JoinID
	err := s.settleEach(ctx, "snooze", sqlSnooze, items, addJoinIDs(&waitedFor))
	if err != nil {
		return err
	}
	if storekit.SomeAtOnce(items) {
		s.wake()
	}
	s.hurry(ctx, waitedFor)
	return nil
}

// Fail makes the records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForFail(settlements)
	if logged, err := s.hasLog(ctx, "fail"); err != nil {
		return err
	} else if logged {
		var parking []string
		for _, item := range items {
			if item.Park {
				parking = append(parking, item.Lease.ID.String())
			}
		}
		if len(parking) > 0 {
			return s.failAndPark(ctx, items, parking)
		}
	}
	return s.settleEach(ctx, "fail", sqlFail, items, nil, storekit.ParkedError, s.atOnce.Park())
}
