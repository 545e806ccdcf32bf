// Package conns has the connections of a PostgreSQL store: of a pool that the store opens, or of the user's pool of pgx or database/sql.
package conns

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Conns lends the connections of a pool. It is safe for concurrent use.
type Conns struct {
	pool
	// owned is nil if the pool is the user's.
	owned *owned
	// admission admits the transactions of handlers to the pool.
	admission *storekit.Admission
	// refused: the server has refused a write, and was not seen to accept writes since.
	refused atomic.Bool
}

// owned is a pool that Open made.
type owned struct {
	pool     *pgxpool.Pool
	dialed   *dialed
	budgeted *budgeted
}

// OfPgx returns the connections of a pool that the user closes.
func OfPgx(pool *pgxpool.Pool) *Conns {
	return &Conns{pool: pgxPool{pool}, admission: admissionTo(pool)}
}

// OfSQL returns the connections of a pool of database/sql that the user closes. Its driver is pgx.
func OfSQL(db *sql.DB) *Conns { return &Conns{pool: sqlPool{db}, admission: admissionTo(db)} }

// Open opens a pool, whose connections come from the budget of the context if that has one. Close closes it. It does not connect.
func Open(ctx context.Context, config *pgxpool.Config) (*Conns, error) {
	own := &owned{dialed: follow(config), budgeted: withinBudget(ctx, config)}
	var err error
	if own.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		own.budgeted.leave()
		return nil, err
	}
	own.budgeted.serve(own.pool)
	c := OfPgx(own.pool)
	c.owned = own
	return c, nil
}

// Drop closes a pool that Open made and nobody has used.
func (c *Conns) Drop() {
	c.owned.pool.Close()
	c.owned.budgeted.leave()
}

// CheckDB refuses a *sql.DB that OfSQL cannot take, and one beside which configured is another pool. Errors: outmill.ErrInvalidConfig.
func CheckDB(db, configured *sql.DB) error {
	switch {
	case db == nil:
		return fmt.Errorf(`%w: postgres.NewFromDB: db is nil: want a *sql.DB from sql.Open("pgx", url)`, outmill.ErrInvalidConfig)
	case configured != nil && configured != db:
		return storekit.InvalidConfig("postgres.NewFromDB: Config.DB is another *sql.DB: leave it nil")
	}
	if _, ok := db.Driver().(*stdlib.Driver); !ok {
		return notPgx(db.Driver())
	}
	return nil
}

// Pgx is the pool of pgx; nil if the connections are those of database/sql.
func (c *Conns) Pgx() *pgxpool.Pool {
	own, _ := c.pool.(pgxPool)
	return own.of
}
