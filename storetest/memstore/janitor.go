package memstore

import (
	"context"
	"maps"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Maintain has nothing to do. See outmill.Janitor.
func (s *Store) Maintain(ctx context.Context) (more bool, err error) {
	return false, s.do(ctx, "maintain", func(*Database, time.Time) error { return nil })
}

// DeleteProcessed deletes processed records. See outmill.Janitor.
func (s *Store) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.count(ctx, "delete processed", limit, func(d *Database, now time.Time) int {
		return d.removeUpTo(limit, func(r *row) bool {
			return r.Status == outmill.StatusProcessed && now.Sub(r.ProcessedAt) > s.options.Retain
		})
	})
}

// ExpireDue makes expired records dead. See outmill.Janitor.
func (s *Store) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.count(ctx, "expire", limit, func(d *Database, now time.Time) (n int) {
		d.each(func(r *row) {
			if n < limit && r.expired(now) && r.undelivered(now) {
				r.kill("expired")
				n++
			}
		})
		return n
	})
}

// DeleteDedupKeys deletes dedup keys after their window. See outmill.Janitor.
func (s *Store) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.count(ctx, "delete dedup keys", limit, func(d *Database, now time.Time) (n int) {
		maps.DeleteFunc(d.keys, func(_ storekit.DedupKey, seen noted) bool {
			over := n < limit && seen.by == nil && !seen.until.After(now)
			if over {
				n++
			}
			return over
		})
		return n
	})
}
