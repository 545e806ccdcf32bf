package sqlite

import (
	"context"

	"github.com/outmill/outmill/storekit"
)

// sqlResting returns 0 if anything is pending or leased, or a call of the janitor would find work
// at ?1. Each search ends at the first entry of an index. ?2 and ?3 are the ends of the retentions of processed records and ended joins.
const sqlResting = `SELECT NOT (EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:line} WHERE stage = 0 AND turn IS NULL)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:turn_line} WHERE stage = 0 AND turn IS NOT NULL)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:held} WHERE stage = 1)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:later} WHERE available_at IS NOT NULL)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:expired} WHERE stage = 5)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:aside} WHERE stage = -1)
	OR EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:processed} WHERE processed_at <= ?2)
	OR EXISTS (SELECT 1 FROM {p:dedup} INDEXED BY {p:dedup_expires} WHERE expires_at <= ?1)
	OR EXISTS (SELECT 1 FROM {p:groups} INDEXED BY {p:groups_expiring} WHERE expires_at <= ?1)
	OR EXISTS (SELECT 1 FROM {p:endings} INDEXED BY {p:endings_look} WHERE look_at <= ?1)
	OR EXISTS (SELECT 1 FROM {p:inbox} INDEXED BY {p:inbox_delete} WHERE delete_at <= ?1)
	OR EXISTS (SELECT 1 FROM {p:sagas} INDEXED BY {p:sagas_delete} WHERE delete_at <= ?1)
	OR EXISTS (SELECT 1 FROM {p:joins} INDEXED BY {p:joins_finished} WHERE finished_at <= ?3))`

// IdleWith returns the handle and the store. See roles.Idle.
func (s *Store) IdleWith() (with, self any) { return s.db, s }

// Resting asks one store after the other. See roles.Idle.
func (s *Store) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	const operation = "look for rest"
	if err := s.usable(ctx); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	return storekit.RestOf(ctx, stores, 1, func(ctx context.Context, other *Store) (resting bool, err error) {
		err = other.read(ctx, operation, func(ctx context.Context, t *txn) error {
			_, err := t.one(ctx, []any{&resting}, sqlResting, t.now, t.now-other.config.Retain.Microseconds(),
				t.now-other.config.RetainJoins.Microseconds())
			return err
		})
		return resting, err
	})
}
