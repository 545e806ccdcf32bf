package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// TestDriver_CutShort ends the context of each call before each of its round trips. Whatever becomes of the call, its connection goes back
// to the pool: one that does not is missing for good, and Close of the pool waits for it.
func TestDriver_CutShort(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 4, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
	// A process that has just begun does all the upkeep.
	open := func() *engine.Engine {
		d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "short"})
		store := engine.New(d, engine.Config{Name: "postgres"})
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	require.NoError(t, open().Ensure(t.Context()))
	require.NoError(t, open().RegisterGroup(t.Context(), outmill.Registration{Group: "billing"}))

	for name, call := range map[string]func(ctx context.Context, s *engine.Engine) error{
		"Maintain": func(ctx context.Context, s *engine.Engine) error { _, err := s.Maintain(ctx); return err },
		"Append": func(ctx context.Context, s *engine.Engine) error {
			return s.Append(ctx, &outmill.Record{Topic: "orders", Key: "7"}, &outmill.Record{Topic: "orders", DueAt: time.Now().Add(time.Hour)})
		},
		"Append of many": func(ctx context.Context, s *engine.Engine) error { return s.Append(ctx, made("orders", "7", 100)...) },
		"Claim and Ack": func(ctx context.Context, s *engine.Engine) error {
			found, err := s.Claim(ctx, outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "billing", Limit: 1, Lease: time.Minute, Order: outmill.OrderKey,
			})
			if err != nil || len(found) == 0 {
				return err
			}
			return s.Ack(ctx, "one", []outmill.Lease{found[0].Lease()})
		},
		"List": func(ctx context.Context, s *engine.Engine) error {
			_, err := s.List(ctx, outmill.ListQuery{})
			return err
		},
		"Transact": func(ctx context.Context, s *engine.Engine) error {
			return s.Transact(ctx, func(ctx context.Context) error { return s.Append(ctx, &outmill.Record{Topic: "orders"}) })
		},
		"RegisterGroup": func(ctx context.Context, s *engine.Engine) error {
			return s.RegisterGroup(ctx, outmill.Registration{Group: "billing"})
		},
	} {
		for at := 1; ; at++ {
			trips := 0
			ctx, end := context.WithCancel(t.Context())
			_ = call(context.WithValue(ctx, tripKey{}, func() {
				if trips++; trips == at {
					end()
				}
			}), open())
			end()
			// A connection that is closed goes back a little later.
			require.Eventually(t, func() bool { return db.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond,
				"%s keeps a connection after its end before the round trip %d", name, at)
			if trips < at {
				break
			}
		}
	}
}
