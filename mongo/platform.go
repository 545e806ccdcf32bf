package mongo

import (
	"context"

	"github.com/outmill/outmill/mongo/internal/platform"
)

// checkTransactions tries whether the server has transactions.
func (s *Store) checkTransactions(ctx context.Context) error {
	if s.config.WithoutTransactions {
		return nil
	}
	return platform.CheckTransactions(func(fn func(ctx context.Context) error) error {
		return again(ctx, func() error { return s.once(ctx, fn) })
	}, s.locks, s.workers)
}
