package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// traffic counts the requests of one pool to the server, as the driver reports them.
type traffic struct {
	statements, roundTrips atomic.Int64
}

var (
	_ pgx.QueryTracer = (*traffic)(nil)
	_ pgx.BatchTracer = (*traffic)(nil)
)

// TraceQueryStart counts a statement that is sent alone.
func (t *traffic) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.statements.Add(1)
	t.roundTrips.Add(1)
	return ctx
}

// TraceQueryEnd is part of the interface.
func (t *traffic) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart counts the round trip of a batch.
func (t *traffic) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.roundTrips.Add(1)
	return ctx
}

// TraceBatchQuery counts a statement of a batch.
func (t *traffic) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	t.statements.Add(1)
}

// TraceBatchEnd is part of the interface.
func (t *traffic) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// counted is another pool on the same database, whose traffic is counted.
func counted(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, *traffic, error) {
	return countedBy(ctx, pool, pool.Config().MaxConns)
}

// countedBy is the same as counted, with this number of connections.
func countedBy(ctx context.Context, pool *pgxpool.Pool, conns int32) (*pgxpool.Pool, *traffic, error) {
	t := &traffic{}
	config := pool.Config()
	config.MaxConns = conns
	config.ConnConfig.Tracer = t
	other, err := pgxpool.NewWithConfig(ctx, config)
	return other, t, err
}

// countStatements begins to count the statements that the server executes for the database of the
// pool. If the server cannot count them, only the statements that the driver sent are known.
func countStatements(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = current_database()`)
	return err
}

// statements returns the number of statements since then.
func statements(ctx context.Context, pool *pgxpool.Pool) (n int64, err error) {
	err = pool.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'`).Scan(&n)
	return n, err
}
