package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// RestsWith returns the database and the store. See storekit.Rester.
func (s *Store) RestsWith() (with, self any) { return s.db, s }

// Resting reports which of the stores are at rest. See storekit.Rester.
func (s *Store) Resting(ctx context.Context, stores []any) ([]bool, error) {
	return storekit.RestOf(ctx, stores, 1, func(ctx context.Context, store *Store) (resting bool, err error) {
		err = store.do(ctx, "look for rest", func(d *Database, now time.Time) error {
			resting = d.atRest(now, store.options.Retain)
			return nil
		})
		return resting, err
	})
}

// atRest reports whether there is nothing to deliver, and nothing for the janitor.
func (d *Database) atRest(now time.Time, retain time.Duration) bool {
	busy := false
	d.each(func(r *row) {
		busy = busy || r.Status == outmill.StatusPending || r.Status == outmill.StatusLeased ||
			r.Status == outmill.StatusProcessed && now.Sub(r.ProcessedAt) > retain
	})
	for _, seen := range d.keys {
		busy = busy || !seen.until.After(now)
	}
	for _, r := range d.registrations {
		busy = busy || !r.expiry.IsZero() && !r.expiry.After(now)
	}
	for _, note := range d.notes.rows {
		busy = busy || d.outlived(note, now)
	}
	for _, saga := range d.sagas.rows {
		busy = busy || !saga.deleteAt.IsZero() && !saga.deleteAt.After(now)
	}
	return !busy
}
