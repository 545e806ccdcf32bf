package conns

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/storekit"
)

// closeIdleWithin limits the time for the end of idle connections.
const closeIdleWithin = 5 * time.Second

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

// Budget returns the budget from which the connections of the pool come, and those beside it; nil if there is none.
func (c *Conns) Budget() *storekit.ConnectionBudget {
	if c.owned == nil || c.owned.budgeted == nil {
		return nil
	}
	return c.owned.budgeted.share.Budget()
}

// Beside returns the settings of a connection beside the pool: those of the pool, or of a connection string. It takes its place in the
// pool's budget. Errors: outmill.ErrInvalidConfig.
func (c *Conns) Beside(setting, url string) (Settings, error) {
	of := c.settings
	if url != "" {
		parsed, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, storekit.InvalidConfig("%s: %w", setting, err)
		}
		of = always(parsed)
	}
	if c.Budget() == nil {
		return of, nil
	}
	return func(ctx context.Context) (*pgx.ConnConfig, BeforeConnect, error) {
		config, _, err := of(ctx)
		return config, c.owned.budgeted.beforeConnect, err
	}, nil
}

// always returns these settings.
func always(config *pgx.ConnConfig) Settings {
	return func(context.Context) (*pgx.ConnConfig, BeforeConnect, error) { return config.Copy(), nil, nil }
}

// idleOf is a storekit.IdleConnections.
type idleOf struct{ pool *pgxpool.Pool }

func (p idleOf) Idle() int { return int(p.pool.Stat().IdleConns()) }

func (p idleOf) CloseIdle() {
	ctx, cancel := context.WithTimeout(context.Background(), closeIdleWithin)
	defer cancel()
	for _, conn := range p.pool.AcquireAllIdle(ctx) {
		_ = conn.Conn().Close(ctx)
		conn.Release()
	}
}
