package conns

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settingsWithin is the time that a pool of database/sql has for a connection whose settings are read.
const settingsWithin = 10 * time.Second

// pool is the pool from which a store takes its connections: of pgx, or of database/sql over pgx.
type pool interface {
	// Acquire returns a connection that belongs to the caller until its release.
	Acquire(ctx context.Context) (*Lent, error)
	// Most is the largest number of connections, 0 without a limit.
	Most() int
	// Mode is how statements are sent.
	Mode(ctx context.Context) (pgx.QueryExecMode, error)
	// Pool is the *pgxpool.Pool or the *sql.DB.
	Pool() any
	// open is how many connections there are.
	open() int
	// settings are those of a connection beside the pool.
	settings(ctx context.Context) (*pgx.ConnConfig, BeforeConnect, error)
}

// BeforeConnect is a pool's hook, for passwords that change, or for a budget of connections.
type BeforeConnect func(context.Context, *pgx.ConnConfig) error

// Settings are those of a connection beside the pool, such as one that listens. The caller may change the configuration, and calls
// the hook, which may be nil, before it connects.
type Settings func(ctx context.Context) (*pgx.ConnConfig, BeforeConnect, error)

// Lent is a connection of a pool.
type Lent struct {
	*pgx.Conn
	back func()
}

// Release returns the connection, or has the pool close one that cannot be used again.
func (l *Lent) Release() {
	if back := l.back; back != nil {
		l.back = nil
		back()
	}
}

type pgxPool struct{ of *pgxpool.Pool }

func (p pgxPool) Acquire(ctx context.Context) (*Lent, error) {
	conn, err := p.of.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &Lent{conn.Conn(), conn.Release}, nil
}

func (p pgxPool) Most() int { return int(p.of.Stat().MaxConns()) }

func (p pgxPool) open() int { return int(p.of.Stat().TotalConns()) }

func (p pgxPool) Pool() any { return p.of }

func (p pgxPool) settings(context.Context) (*pgx.ConnConfig, BeforeConnect, error) {
	config := p.of.Config()
	return config.ConnConfig, config.BeforeConnect, nil
}

func (p pgxPool) Mode(context.Context) (pgx.QueryExecMode, error) {
	return p.of.Config().ConnConfig.DefaultQueryExecMode, nil
}

type sqlPool struct{ db *sql.DB }

func (p sqlPool) Acquire(ctx context.Context) (*Lent, error) {
	conn, back, err := fromSQL(ctx, p.db)
	if err != nil {
		return nil, err
	}
	return &Lent{conn, back}, nil
}

func (p sqlPool) Most() int { return p.db.Stats().MaxOpenConnections }

func (p sqlPool) open() int { return p.db.Stats().OpenConnections }

func (p sqlPool) Pool() any { return p.db }

// settings are those of a connection, because database/sql has no others.
func (p sqlPool) settings(ctx context.Context) (*pgx.ConnConfig, BeforeConnect, error) {
	ctx, cancel := context.WithTimeout(ctx, settingsWithin)
	defer cancel()
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Release()
	return conn.Config(), nil, nil
}

func (p sqlPool) Mode(ctx context.Context) (pgx.QueryExecMode, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	return conn.Config().DefaultQueryExecMode, nil
}
