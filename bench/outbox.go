package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

// appendAtOnce is the number of records that the benches append in one call.
const appendAtOnce = 1000

// sqlTables returns the names of the store's tables.
const sqlTables = "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relkind = 'r' AND relnamespace = 'outmill'::regnamespace"

// unsettled reports whether the store has a record of a topic, or of any topic if it is "", that is not settled. Each number is counted up
// to 1, so a look costs little while many records are left.
func unsettled(ctx context.Context, store outmill.Inspector, topic string) (bool, error) {
	stats, err := store.Stats(ctx, 1)
	return slices.ContainsFunc(stats, func(s outmill.TopicStats) bool {
		return (topic == "" || s.Topic == topic) && s.Pending+s.Leased+s.Processed+s.Dead > 0
	}), err
}

// outbox makes a store on a pool, with new tables.
func outbox(ctx context.Context, pool *pgxpool.Pool) (*postgres.Store, error) {
	return outboxIn(ctx, pool, postgres.DefaultSchema)
}

// outboxIn is outbox in a schema of that name, which needs no quotes.
func outboxIn(ctx context.Context, pool *pgxpool.Pool, schema string) (*postgres.Store, error) {
	if _, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, postgres.Config{Schema: schema}, nil)
	if err != nil {
		return nil, err
	}
	return store, store.Ensure(ctx)
}

// nothingLeft returns an error if a message is left. Do not call it while
// the clock runs: see forwarding.drain.
func nothingLeft(ctx context.Context, store outmill.Inspector) error {
	stats, err := store.Stats(context.WithoutCancel(ctx), 0)
	if err != nil {
		return err
	}
	left := 0
	for _, s := range stats {
		left += s.Pending + s.Leased + s.Processed + s.Dead
	}
	if left > 0 {
		return fmt.Errorf("%d messages are left, or more", left)
	}
	return nil
}

// tidyTime is the time that a store has for its upkeep: a little more than the 30 s
// after which it writes to another segment of the log than to one of 4 to 64 MiB.
func (b *bench) tidyTime() time.Duration {
	if b.short {
		return time.Second
	}
	return 40 * time.Second
}

// claimEvery is the default interval between claims of an idle reader.
const claimEvery = 500 * time.Millisecond

// tidy claims from a drained queue and maintains the store, as an idle reader of a
// subscriber or forwarder does. In these calls the store does its upkeep: for
// example, it truncates segments of the log.
func (b *bench) tidy(ctx context.Context, store outmill.Store, group string) error {
	for until := time.Now().Add(b.tidyTime()); time.Now().Before(until); {
		claimed, err := store.Claim(ctx, outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: group, Limit: 1, Lease: time.Minute})
		if err == nil && len(claimed) > 0 {
			err = errors.New("a message is left")
		}
		if err == nil {
			_, err = store.Maintain(ctx)
		}
		if err == nil {
			err = sleep(ctx, claimEvery)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill appends n records for a group that is registered before.
func (b *bench) fill(ctx context.Context, store outmill.Store, group, topic string, n int, keyed bool) error {
	return b.fillFrom(ctx, store, group, topic, 0, n, keyed)
}

// fillFrom is the same as fill, and begins with a later message.
func (b *bench) fillFrom(ctx context.Context, store outmill.Store, group, topic string, first, n int, keyed bool) error {
	if err := store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{topic}}}); err != nil {
		return err
	}
	for from := 0; from < n; from += appendAtOnce {
		if err := store.Append(ctx, records(topic, first+from, min(appendAtOnce, n-from), b.size, keyed)...); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if from > 0 && from%200_000 == 0 {
			b.say("%d of %d appended", from, n)
		}
	}
	return nil
}
