package conns

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// SendBatch sends a batch on a connection of the pool, which the results return when they are closed.
func (c *Conns) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	conn, err := c.Acquire(ctx)
	if err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return lentResults{conn.SendBatch(ctx, batch), conn}
}

type lentResults struct {
	pgx.BatchResults
	conn *Lent
}

func (r lentResults) Close() error {
	defer r.conn.Release()
	return r.BatchResults.Close()
}

// ScanRow reads the row of a statement, without a transaction.
func (c *Conns) ScanRow(ctx context.Context, text string, args []any, into ...any) error {
	conn, err := c.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return conn.QueryRow(ctx, text, args...).Scan(into...)
}
