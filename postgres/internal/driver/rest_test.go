package driver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// A process with a schema for each tenant asks for all that share a pool.
func TestDriver_SchemasAreAskedTogether(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 4, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
	var stores []*engine.Engine
	var asked []any
	for i := range 5 {
		schema := fmt.Sprintf("tenant_%d", i)
		s := engine.New(driver.New(driver.PoolOf(db), driver.Config{Name: schema, Schema: schema}), engine.Config{})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.Ensure(t.Context()))
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
		_, self := s.IdleWith()
		stores, asked = append(stores, s), append(asked, self)
	}
	rest := func() (answers []bool, trips int) {
		ctx, seen := tapped(t.Context())
		answers, err := stores[0].AreIdle(ctx, asked)
		require.NoError(t, err)
		return answers, len(seen.list())
	}
	together := func(want ...bool) {
		t.Helper()
		answers, trips := rest()
		require.Equal(t, want, answers)
		require.Equal(t, 1, trips)
	}
	answers, trips := rest()
	require.Equal(t, []bool{true, true, true, true, true}, answers)
	require.Greater(t, trips, 1, "a process that has read no log yet searches")
	together(true, true, true, true, true)

	publish := func(i int) {
		require.NoError(t, stores[i].Append(t.Context(), &outmill.Record{Topic: "orders", Key: "k"}))
	}
	publish(1)
	publish(3)
	answers, _ = rest()
	require.Equal(t, []bool{true, false, true, false, true}, answers, "a topic that the process has not seen in the log")
	together(true, false, true, false, true)
	claim := func(i int) []outmill.Lease {
		got, err := stores[i].Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 10, Lease: time.Hour, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		require.Len(t, got, 1)
		return leasesOf(got)
	}
	leases := claim(1)
	together(true, false, true, false, true)
	require.NoError(t, stores[1].Ack(t.Context(), "worker", leases))
	together(true, true, true, false, true)

	require.NoError(t, stores[2].RegisterGroup(t.Context(), outmill.Registration{Group: "others"}))
	answers, _ = rest()
	require.Equal(t, []bool{true, true, true, false, true}, answers, "the history is another one")
	together(true, true, true, false, true)

	_, err := db.Exec(context.WithoutCancel(t.Context()), "DROP SCHEMA tenant_0 CASCADE")
	require.NoError(t, err)
	answers, _ = rest()
	require.Equal(t, []bool{false, true, true, false, true}, answers, "a schema that is gone")
	require.NoError(t, stores[3].Ack(t.Context(), "worker", claim(3)))
	answers, _ = rest()
	require.Equal(t, []bool{false, true, true, true, true}, answers)
}
