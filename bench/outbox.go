package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

// appendAtOnce is how many records the benches append in a call.
const appendAtOnce = 1000

// outbox makes a store on a pool, and its tables anew, of a lane where one is given.
func outbox(ctx context.Context, pool *pgxpool.Pool, lane postgres.Lane) (*postgres.Store, error) {
	if _, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS outmill CASCADE"); err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, postgres.Config{Lane: lane}, nil)
	if err != nil {
		return nil, err
	}
	return store, store.Ensure(ctx)
}

// fill appends n records for a group that is registered before.
func (b *bench) fill(ctx context.Context, store outmill.Store, group, topic string, n int, keyed bool) error {
	if err := store.RegisterGroup(ctx, group, outmill.Topics{Include: []string{topic}}); err != nil {
		return err
	}
	for from := 0; from < n; from += appendAtOnce {
		if err := store.Append(ctx, records(topic, from, min(appendAtOnce, n-from), b.size, keyed)...); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if from > 0 && from%200_000 == 0 {
			b.say("%d of %d appended", from, n)
		}
	}
	return nil
}
