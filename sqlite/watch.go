package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
)

const (
	firstWatch = time.Millisecond
	lastWatch  = 50 * time.Millisecond
	// watchFor is how long a watch waits for the caller's transaction to commit.
	// Later commits are found by polling.
	watchFor = 30 * time.Second
)

const sqlReached = `SELECT count(*) FROM sqlite_sequence WHERE name = ? AND seq >= ?`

// watch wakes the readers when other connections can see the records that were appended in the
// caller's transaction. It must poll, because database/sql does not report commits.
func (s *Store) watch(tx Handle, seq int64, topics []string) {
	s.waker.watch(tx, topics, func(ctx context.Context) (committed bool) {
		waits := storekit.NewWaits(firstWatch, lastWatch)
		for waits.Wait(ctx) == nil {
			var reached int
			err := s.db.QueryRowContext(ctx, sqlReached, s.sql.prefix+"records", seq).Scan(&reached)
			if err == nil && reached > 0 {
				return true
			}
		}
		return false
	})
}
