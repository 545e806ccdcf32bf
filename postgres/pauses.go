package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlLockPauses lets one change of the pauses run at a time. The statement after it then has
	// a snapshot with what the transaction before has committed.
	sqlLockPauses = `SELECT 1 FROM {p:meta} WHERE only_row FOR NO KEY UPDATE`

	// nextPauses follows the clock. After a failover to a replica that was behind, or a restore
	// to an earlier time, a counter would repeat a number that records were set aside for.
	nextPauses = `greatest(pauses + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`

	// sqlPause changes no row if the store has $7 other pauses.
	sqlPause = `WITH next AS MATERIALIZED (SELECT ` + nextPauses + ` AS number FROM {p:meta} WHERE only_row),
put AS (INSERT INTO {p:pauses} (grp, topic, key, tenant_id, paused_by, reason, number, paused_at)
	SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, number, statement_timestamp() FROM next
	WHERE (SELECT count(*) FROM {p:pauses} WHERE (grp, topic, key, tenant_id) <> ($1::text, $2::text, $3::text, $4::text)) < $7::bigint
	ON CONFLICT (grp, topic, key, tenant_id) DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason RETURNING 1)
UPDATE {p:meta} SET pauses = (SELECT number FROM next) WHERE only_row AND EXISTS (SELECT 1 FROM put)`

	sqlResume = `WITH gone AS (
	DELETE FROM {p:pauses} WHERE grp = $1::text AND topic = $2::text AND key = $3::text AND tenant_id = $4::text RETURNING 1)
UPDATE {p:meta} SET pauses = ` + nextPauses + ` WHERE only_row AND EXISTS (SELECT 1 FROM gone)`

	// sqlPauses reads the counter and, if it is not $1, the pauses, in one snapshot: a list that
	// is older than its counter would never be read again.
	sqlPauses = `SELECT m.pauses, p.number, p.grp, p.topic, p.key, p.tenant_id, p.paused_at, p.paused_by, p.reason
FROM {p:meta} AS m LEFT JOIN LATERAL (SELECT * FROM {p:pauses} WHERE m.pauses <> $1::bigint OFFSET 0) AS p ON true WHERE m.only_row`

	// noCounter is no store's counter.
	noCounter = -1
)

// Pause stops the deliveries of the scope. See roles.Pauses.
func (s *Store) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	const operation = "pause"
	if err := storekit.CheckPause(scope, by, reason); err != nil {
		return s.explain(ctx, operation, err)
	}
	var written int
	args := append(scopeArgs(scope), by, reason, roles.MaxPauses)
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		return t.finish(ctx, step{template: sqlLockPauses}, step{template: sqlPause, args: args, count: &written})
	})
	if err == nil && written == 0 {
		err = s.explain(ctx, operation, roles.ErrTooManyPauses)
	}
	return err
}

// Resume ends the pause of the scope, and wakes readers. See roles.Pauses.
func (s *Store) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	const operation = "resume"
	if err := storekit.CheckPauseScope(scope); err != nil {
		return false, s.explain(ctx, operation, err)
	}
	var ended int
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		return t.finish(ctx, step{template: sqlLockPauses}, step{template: sqlResume, args: scopeArgs(scope), count: &ended})
	})
	if err != nil || ended == 0 {
		return false, err
	}
	s.wake()
	return true, nil
}

func scopeArgs(s roles.PauseScope) []any { return []any{s.Group, s.Topic, s.Key, s.TenantID} }

// Paused returns the pauses. See roles.Pauses.
func (s *Store) Paused(ctx context.Context) ([]roles.PauseInfo, error) {
	const operation = "list pauses"
	list, err := s.readPauses(ctx, operation)
	if err != nil {
		return nil, err
	}
	return append([]roles.PauseInfo(nil), list.All()...), nil
}

// LastPauses returns the pauses as the store last read them. Claim, Extend, Stats and Groups read
// whether they have changed. See roles.Pauses.
func (s *Store) LastPauses() *roles.PauseList { return s.pauses.Load() }

// readPauses reads the pauses if they have changed.
func (s *Store) readPauses(ctx context.Context, operation string) (*roles.PauseList, error) {
	look := s.lookAtPauses()
	err := s.read(ctx, operation, func(ctx context.Context) error { return s.query(ctx, look.step()) })
	if err != nil {
		return nil, err
	}
	return look.list(), nil
}

// pauseLook reads the pauses if they are not those that the store knows.
type pauseLook struct {
	s       *Store
	known   *roles.PauseList
	counter int64
	pauses  []roles.PauseInfo
}

func (s *Store) lookAtPauses() *pauseLook { return &pauseLook{s: s, known: s.pauses.Load()} }

func (l *pauseLook) step() step {
	l.counter, l.pauses = 0, nil
	return step{template: sqlPauses, args: []any{counterOf(l.known)}, row: func(scan func(...any) error) error {
		var number pgtype.Int8
		var at pgtype.Timestamptz
		var group, topic, key, tenant, by, reason pgtype.Text
		err := scan(&l.counter, &number, &group, &topic, &key, &tenant, &at, &by, &reason)
		if err == nil && number.Valid {
			scope := roles.PauseScope{Group: group.String, Topic: topic.String, Key: key.String, TenantID: tenant.String}
			info := roles.PauseInfo{PauseScope: scope, Number: number.Int64, At: utc(at), By: by.String, Reason: reason.String}
			l.pauses = append(l.pauses, info)
		}
		return err
	}}
}

// list returns the pauses that the step has read, and makes them the known ones.
func (l *pauseLook) list() *roles.PauseList {
	if l.known != nil && l.counter == l.known.Generation() {
		return l.known
	}
	list := roles.NewPauseList(l.counter, l.pauses)
	l.s.pauses.Renew(l.known, list)
	// Other topics may have records now.
	l.s.busy.Forget()
	return list
}

// counterOf returns the counter with which the list was read.
func counterOf(list *roles.PauseList) int64 {
	if list == nil {
		return noCounter
	}
	return list.Generation()
}
