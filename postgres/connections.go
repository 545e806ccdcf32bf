package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/postgres/internal/pools"
)

// connections is the pool from which a store takes its connections: of pgx, or of database/sql over
// pgx.
type connections interface {
	// acquire returns a connection that belongs to the caller until its release.
	acquire(ctx context.Context) (*lent, error)
	// most is the largest number of connections, 0 without a limit, and open how many there are.
	most() int
	open() int
	// settings are those of a connection beside the pool.
	settings(ctx context.Context) (*pgx.ConnConfig, beforeConnect, error)
	// mode is how statements are sent.
	mode(ctx context.Context) (pgx.QueryExecMode, error)
	// pool is the pool itself, for comparisons.
	pool() any
}

// lent is a connection of a pool.
type lent struct {
	*pgx.Conn
	back func()
}

// release returns the connection, or has the pool close one that cannot be used again.
func (l *lent) release() {
	if back := l.back; back != nil {
		l.back = nil
		back()
	}
}

type pgxConnections struct{ *pgxpool.Pool }

func (p pgxConnections) acquire(ctx context.Context) (*lent, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &lent{conn.Conn(), conn.Release}, nil
}

func (p pgxConnections) most() int { return int(p.Stat().MaxConns()) }

func (p pgxConnections) open() int { return int(p.Stat().TotalConns()) }

func (p pgxConnections) pool() any { return p.Pool }

func (p pgxConnections) settings(context.Context) (*pgx.ConnConfig, beforeConnect, error) {
	of := p.Config()
	return of.ConnConfig, of.BeforeConnect, nil
}

func (p pgxConnections) mode(context.Context) (pgx.QueryExecMode, error) {
	return p.Config().ConnConfig.DefaultQueryExecMode, nil
}

type sqlConnections struct{ db *sql.DB }

func (p sqlConnections) acquire(ctx context.Context) (*lent, error) {
	conn, back, err := pools.FromSQL(ctx, p.db)
	if err != nil {
		return nil, err
	}
	return &lent{conn, back}, nil
}

func (p sqlConnections) most() int { return p.db.Stats().MaxOpenConnections }

func (p sqlConnections) open() int { return p.db.Stats().OpenConnections }

func (p sqlConnections) pool() any { return p.db }

// settings are those of a connection, because database/sql has no others.
func (p sqlConnections) settings(ctx context.Context) (*pgx.ConnConfig, beforeConnect, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	conn, err := p.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.release()
	return conn.Config(), nil, nil
}

func (p sqlConnections) mode(ctx context.Context) (pgx.QueryExecMode, error) {
	conn, err := p.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.release()
	return conn.Config().DefaultQueryExecMode, nil
}

// sendBatch sends a batch on a connection of the pool, which the results return when they are
// closed.
func (s *Store) sendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	conn, err := s.conns.acquire(ctx)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return lentResults{conn.SendBatch(ctx, batch), conn}
}

type lentResults struct {
	pgx.BatchResults
	conn *lent
}

func (r lentResults) Close() error {
	defer r.conn.release()
	return r.BatchResults.Close()
}

// scanRow reads the row of a statement, without a transaction.
func (s *Store) scanRow(ctx context.Context, text string, args []any, into ...any) error {
	conn, err := s.conns.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.release()
	return conn.QueryRow(ctx, text, args...).Scan(into...)
}
