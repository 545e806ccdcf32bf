package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/storekit"
)

// budgeted is a pool that takes its connections from a budget. A nil one has none.
type budgeted struct{ share *storekit.BudgetedPool }

// withinBudget has a pool that is opened with this configuration take its connections from the budget of the
// context; it returns nil if that has none.
func withinBudget(ctx context.Context, config *pgxpool.Config) *budgeted {
	budget := storekit.ConnectionBudgetOf(ctx)
	if budget == nil {
		return nil
	}
	b := &budgeted{share: budget.Join()}
	config.BeforeConnect = b.beforeConnect
	config.AfterRelease = func(*pgx.Conn) bool { return !b.share.Released() }
	// An idle connection that must not be closed would be one less for all others.
	config.MinConns, config.MinIdleConns = 0, 0
	return b
}

// beforeConnect has a connection wait for its turn. The wait does not use up its connect_timeout.
func (b *budgeted) beforeConnect(_ context.Context, config *pgx.ConnConfig) error {
	if config.ConnectTimeout > 0 {
		config.ConnectTimeout += b.share.Wait()
	}
	config.DialFunc = b.share.Dialer(config.DialFunc)
	return nil
}

func (b *budgeted) serve(pool *pgxpool.Pool) {
	if b != nil {
		b.share.Serve(idleOf{pool})
	}
}

func (b *budgeted) leave() {
	if b != nil {
		b.share.Leave()
	}
}

// useBudget has the connection that listens come from the budget, too, also if it has a URL of its own.
func (s *Store) useBudget(b *budgeted) {
	s.budgeted = b
	if b == nil {
		return
	}
	of := s.notices.settings
	s.notices.settings = func(ctx context.Context) (*pgx.ConnConfig, beforeConnect, error) {
		config, _, err := of(ctx)
		return config, b.beforeConnect, err
	}
}

// ListensWithin returns the budget of the connection that listens: see storekit.BudgetedListener.
func (s *Store) ListensWithin() *storekit.ConnectionBudget {
	if s.budgeted == nil || s.notices.off() {
		return nil
	}
	return s.budgeted.share.Budget()
}

// idleOf is a storekit.IdleConnections.
type idleOf struct{ pool *pgxpool.Pool }

func (p idleOf) Idle() int { return int(p.pool.Stat().IdleConns()) }

func (p idleOf) CloseIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), notifyWithin)
	defer cancel()
	for _, conn := range p.pool.AcquireAllIdle(ctx) {
		_ = conn.Conn().Close(ctx)
		conn.Release()
	}
}

var _ storekit.BudgetedListener = (*Store)(nil)
