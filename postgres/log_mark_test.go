package postgres_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
)

func TestStore_LogMark(t *testing.T) {
	t.Parallel()

	// If a claim counted a place as given before it was given, its row would never be read: no
	// claim searches for a transaction that gets its number after the claim, and its place
	// before the claim's position. It takes thousands of attempts to meet nextval at the moment
	// at which the sequence shows a value 32 places ahead.
	t.Run("a claim never sees the sequence ahead of the places that it has given", func(t *testing.T) {
		t.Parallel()
		looks, atOnce := testenv.Steps(10_000, 40_000), 200
		r := newTape(t, tapePool(t), storetest.Options{})
		// A sequence that has given no place has no last one.
		execute(t, r.db, r.sql(`SELECT nextval('{records_seq_seq}')`))
		ctx, stop := context.WithCancel(t.Context())
		var appending sync.WaitGroup
		for range 2 {
			conn, err := r.db.Acquire(ctx)
			require.NoError(t, err)
			appending.Go(func() {
				defer conn.Release()
				for ctx.Err() == nil {
					_, _ = conn.Exec(ctx, r.sql(`SELECT count(nextval('{records_seq_seq}')) FROM generate_series(1, 500)`))
				}
			})
		}
		defer appending.Wait()
		defer stop()
		conn, err := r.db.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		const looked = 3 // the column of a mark that has the place
		for range looks / atOnce {
			batch := &pgx.Batch{}
			batch.Queue("SET LOCAL jit = off")
			for range atOnce {
				batch.Queue(r.store.MarkSQL())
				batch.Queue(r.sql(`SELECT pg_sequence_last_value('{records_seq_seq}')`))
			}
			results := conn.SendBatch(t.Context(), batch)
			_, err := results.Exec()
			require.NoError(t, err)
			for range atOnce {
				rows, err := results.Query()
				require.NoError(t, err)
				var place, given int64
				for rows.Next() {
					values, err := rows.Values()
					require.NoError(t, err)
					place = values[looked].(int64)
				}
				require.NoError(t, rows.Err())
				require.NoError(t, results.QueryRow().Scan(&given))
				require.LessOrEqual(t, place, given)
			}
			require.NoError(t, results.Close())
		}
	})
}
