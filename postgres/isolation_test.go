package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

func TestStore_Isolation(t *testing.T) {
	t.Parallel()
	const records, workers = 200, 6
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run("claims at the same time never return one record twice where sessions are "+string(level)+" (OBX-098)", func(t *testing.T) {
			t.Parallel()
			db := connectAs(t, postgrestest.Database(t), func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
			})
			store := newStore(t, db, postgres.Config{EnsureSchema: true, NotifyInterval: -1})
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			require.NoError(t, store.Append(t.Context(), made("orders", "x", records)...))

			var mu sync.Mutex
			claims := map[outmill.WorkItemID]int{}
			var claimers errgroup.Group
			for range workers {
				claimers.Go(func() error {
					req := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: readers, Limit: 7, Lease: time.Hour}
					for {
						found, err := store.Claim(t.Context(), req)
						if err != nil {
							return err
						}
						mu.Lock()
						for _, r := range found {
							claims[r.ID]++
						}
						done := len(claims) == records
						mu.Unlock()
						if done {
							return nil
						}
					}
				})
			}
			require.NoError(t, claimers.Wait())
			for id, n := range claims {
				require.Equal(t, 1, n, "record %s", id)
			}
		})
	}
}
