package sqlite

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlPauses = `SELECT number, grp, topic, key, tenant_id, paused_at, paused_by, reason FROM {p:pauses}`

	sqlRenewPause = `UPDATE {p:pauses} SET paused_by = ?5, reason = ?6 WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND tenant_id = ?4`
	sqlCountPause = `SELECT count(*) FROM {p:pauses}`
	sqlAddPause   = `INSERT INTO {p:pauses} (grp, topic, key, tenant_id, paused_by, reason, number, paused_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	sqlEndPause = `DELETE FROM {p:pauses} WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND tenant_id = ?4`

	sqlPausesChanged = `UPDATE {p:meta} SET pauses = pauses + 1 WHERE only_row = 1`
)

// Pause stops the deliveries of the scope. See roles.Pauses.
func (s *Store) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	const operation = "pause"
	if err := storekit.CheckPause(scope, by, reason); err != nil {
		return s.explain(ctx, operation, err)
	}
	return s.write(ctx, operation, func(ctx context.Context, t *txn) error { return t.pause(ctx, scope, by, reason) })
}

func (t *txn) pause(ctx context.Context, s roles.PauseScope, by, reason string) error {
	args := []any{s.Group, s.Topic, s.Key, s.TenantID, by, reason}
	renewed, err := t.exec(ctx, sqlRenewPause, args...)
	if err != nil {
		return err
	}
	if renewed == 0 {
		var count int
		if _, err := t.one(ctx, []any{&count}, sqlCountPause); err != nil {
			return err
		}
		if count >= roles.MaxPauses {
			return roles.ErrTooManyPauses
		}
		if _, err := t.exec(ctx, sqlAddPause, append(args, t.pauseGeneration+1, t.now)...); err != nil {
			return err
		}
	}
	_, err = t.exec(ctx, sqlPausesChanged)
	return err
}

// Resume ends the pause of the scope, and wakes readers. See roles.Pauses.
func (s *Store) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	const operation = "resume"
	if err := storekit.CheckPauseScope(scope); err != nil {
		return false, s.explain(ctx, operation, err)
	}
	var ended int
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		ended, err = t.exec(ctx, sqlEndPause, scope.Group, scope.Topic, scope.Key, scope.TenantID)
		if err != nil || ended == 0 {
			return err
		}
		_, err = t.exec(ctx, sqlPausesChanged)
		return err
	})
	if err != nil {
		return false, err
	}
	if ended > 0 {
		s.waker.notifier.Notify()
	}
	return ended > 0, nil
}

// Paused returns the pauses. See roles.Pauses.
func (s *Store) Paused(ctx context.Context) (pauses []roles.PauseInfo, err error) {
	err = s.read(ctx, "list pauses", func(_ context.Context, t *txn) error {
		pauses = append(pauses, t.pauses.All()...)
		return nil
	})
	return pauses, err
}

// LastPauses returns the pauses as the store last read them. Each transaction of the store
// reads whether they have changed. See roles.Pauses.
func (s *Store) LastPauses() *roles.PauseList { return s.pauses.Load() }

// readPauses reads the pauses, unless the known ones are those that this transaction sees.
func (t *txn) readPauses(ctx context.Context) error {
	if known := t.s.pauses.Load(); known != nil && known.Generation() == t.pauseGeneration {
		t.pauses = known
		return nil
	}
	pauses, err := list(ctx, t, func(rows *sql.Rows, p *roles.PauseInfo) error {
		var at int64
		err := rows.Scan(&p.Number, &p.Group, &p.Topic, &p.Key, &p.TenantID, &at, &p.By, &p.Reason)
		p.At = timeOf(at)
		return err
	}, sqlPauses)
	if err != nil {
		return err
	}
	t.pauses = roles.NewPauseList(t.pauseGeneration, pauses)
	t.s.pauses.Keep(t.pauses)
	return nil
}
