package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/outmill/outmill/storekit"
)

const (
	sqlEndRegistrations = `DELETE FROM {p:groups} WHERE (grp, include, exclude) IN (
	SELECT grp, include, exclude FROM {p:groups} INDEXED BY {p:groups_expiring} WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)
RETURNING grp`

	sqlNoteEnding = `INSERT INTO {p:endings} (grp, ended_at, look_at) SELECT DISTINCT value, ?2, ?2 FROM json_each(?1) WHERE true
ON CONFLICT (grp) DO UPDATE SET ended_at = excluded.ended_at, look_at = excluded.look_at, empty = 0, others = NULL`

	sqlNoted = `SELECT grp FROM {p:endings} INDEXED BY {p:endings_look} WHERE look_at <= ?1 ORDER BY look_at LIMIT ?2`
	sqlEnded = `SELECT grp, ended_at FROM {p:endings} WHERE empty = 0`

	// sqlUndelivered leaves out records whose lease has not ended.
	sqlUndelivered = `
SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:line} WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL LIMIT ?4)
UNION ALL SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:turn_line} WHERE grp = ?1 AND topic = ?2 AND stage = 0
AND turn IS NOT NULL LIMIT ?4)
UNION ALL SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:held} WHERE grp = ?1 AND topic = ?2 AND stage = 1 LIMIT ?4)
UNION ALL SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND topic = ?2 AND stage IN (2, 3)
AND available_at IS NOT NULL LIMIT ?4)
UNION ALL SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:later} WHERE grp = ?1 AND topic = ?2 AND stage = 4
AND available_at <= ?3 LIMIT ?4)
UNION ALL SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:expired} WHERE grp = ?1 AND topic = ?2 AND stage = 5 LIMIT ?4)
UNION ALL SELECT * FROM (SELECT seq FROM {p:records} INDEXED BY {p:aside} WHERE grp = ?1 AND topic = ?2 AND stage = -1 LIMIT ?4)
LIMIT ?4`

	sqlDropUndelivered = sqlDelete + ` RETURNING key`

	sqlDropEmptyLanes = `DELETE FROM {p:lanes} WHERE grp = ?1 AND topic = ?2 AND key IN (SELECT value FROM json_each(?3))
	AND NOT EXISTS (SELECT 1 FROM {p:records} AS r INDEXED BY {p:held_key} WHERE r.grp = ?1 AND r.topic = ?2 AND r.key = {p:lanes}.key
	AND r.stage = 1)`

	sqlLookAgain = `UPDATE {p:endings} SET look_at = ?2, empty = ?3 WHERE grp = ?1`
	// sqlForgetEnding keeps a group without a registration (?3) as long as it has records.
	sqlForgetEnding = `DELETE FROM {p:endings} WHERE grp = ?1 AND ended_at <= ?2 AND (empty = 1 OR ?3)`
)

var sqlHasRecords = func() string {
	var exists []string
	for _, p := range []part{inLine, inTurns, isHeld, later, expired, isAside, isSettled} {
		exists = append(exists, `EXISTS (SELECT 1 `+p.of("grp = ?1")+`)`)
	}
	return `SELECT ` + strings.Join(exists, `
	OR `)
}()

// ExpireRegistrations removes registrations whose end has passed, and the
// undelivered records of their groups. See outmill.Janitor.
func (s *Store) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	const operation = "expire registrations"
	return storekit.RegistrationExpiry{
		End: func(ctx context.Context, limit int) (int, error) {
			return s.tidy(ctx, operation, limit, (*txn).endRegistrations)
		},
		Noted: func(ctx context.Context, limit int) (groups []string, err error) {
			err = s.read(ctx, operation, func(ctx context.Context, t *txn) error {
				groups, err = t.texts(ctx, sqlNoted, t.now, limit)
				return err
			})
			return groups, err
		},
		Sweep: func(ctx context.Context, group string, limit int) (int, error) {
			return s.tidy(ctx, operation, limit, func(t *txn, ctx context.Context, limit int) (int, error) {
				return t.sweep(ctx, group, limit)
			})
		},
	}.Expire(ctx, limit)
}

func (t *txn) endRegistrations(ctx context.Context, limit int) (int, error) {
	groups, err := t.texts(ctx, sqlEndRegistrations, t.now, limit)
	if err != nil || len(groups) == 0 {
		return 0, err
	}
	if _, err := t.exec(ctx, sqlNoteEnding, textList(groups), t.now); err != nil {
		return 0, err
	}
	_, err = t.exec(ctx, sqlGroupsChanged)
	return len(groups), err
}

// sweep deletes undelivered records of topics that the group no longer reads. If it has found
// all of them, it sets the time of the next check.
func (t *txn) sweep(ctx context.Context, group string, limit int) (deleted int, err error) {
	routes, err := t.routes(ctx)
	if err != nil {
		return 0, err
	}
	unread, err := t.unread(ctx, routes, group)
	if err != nil {
		return 0, err
	}
	for _, topic := range unread {
		n, err := t.dropUndelivered(ctx, group, topic, t.now, limit-deleted)
		if err != nil {
			return 0, err
		}
		if deleted += n; deleted == limit {
			return deleted, nil
		}
	}
	return deleted, t.noteSwept(ctx, routes, group)
}

// unread returns the topics of the group's undelivered records that the group does not read.
func (t *txn) unread(ctx context.Context, routes *storekit.RoutingTable, group string) ([]string, error) {
	topics, err := t.texts(ctx, sqlUndeliveredTopics, group)
	return routes.Unread(group, topics), err
}

// dropUndelivered leaves out records whose lease ends after the time.
func (t *txn) dropUndelivered(ctx context.Context, group, topic string, after int64, limit int) (int, error) {
	seqs, err := t.seqs(ctx, sqlUndelivered, group, topic, after, limit)
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	if err := t.openLanes(ctx, seqs); err != nil {
		return 0, err
	}
	if err := t.moveSteps(ctx, isDropped, sqlOpenStepsOf, seqList(seqs)); err != nil {
		return 0, err
	}
	keys, err := t.texts(ctx, sqlDropUndelivered, seqList(seqs))
	if err != nil || !t.lanes {
		return len(seqs), err
	}
	_, err = t.exec(ctx, sqlDropEmptyLanes, group, topic, textList(keys))
	return len(seqs), err
}

// noteSwept sets the group's next check: in the next round if leases have not ended, and later
// otherwise.
func (t *txn) noteSwept(ctx context.Context, routes *storekit.RoutingTable, group string) error {
	leased, err := t.unread(ctx, routes, group)
	if err != nil {
		return err
	}
	if len(leased) > 0 {
		_, err := t.exec(ctx, sqlLookAgain, group, t.now, 0)
		return err
	}
	var found sql.NullBool
	if _, err := t.one(ctx, []any{&found}, sqlHasRecords, group); err != nil {
		return err
	}
	registered := routes.Has(group)
	if _, err := t.exec(ctx, sqlLookAgain, group, t.now+storekit.SweepEvery.Microseconds(), !found.Bool); err != nil {
		return err
	}
	if !registered {
		if _, err := t.exec(ctx, sqlDropWorkers, group); err != nil {
			return err
		}
	}
	_, err = t.exec(ctx, sqlForgetEnding, group, t.now-storekit.SweepFor.Microseconds(), registered)
	return err
}
