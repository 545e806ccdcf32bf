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

func tapped(ctx context.Context) (context.Context, *trips) {
	seen := &trips{}
	return context.WithValue(ctx, tapKey{}, seen), seen
}

// Round trips are what a distant database costs. What goes to the log costs less: see TestTake.
func TestDriver_RoundTrips(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
	open := func() *engine.Engine {
		d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill"})
		d.RecordsOnly()
		s := engine.New(d, engine.Config{})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	s, other := open(), open()
	require.NoError(t, s.Ensure(t.Context()))
	register := func(s *engine.Engine, group string) {
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{"orders"}}}))
	}
	appended := func(change func(r *outmill.Record)) (r *outmill.Record, round int) {
		r = &outmill.Record{Topic: "orders", Key: outmill.NewOwnerToken().String(), Payload: []byte("payload")}
		change(r)
		ctx, seen := tapped(t.Context())
		require.NoError(t, s.Append(ctx, r))
		return r, len(seen.list())
	}
	plain := func(*outmill.Record) {}
	claimed := func(group string) (got []*outmill.Record, round int) {
		ctx, seen := tapped(t.Context())
		got, err := s.Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: group, Limit: 10, Lease: time.Minute, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		return got, len(seen.list())
	}
	register(s, "first")
	_, _ = appended(plain)
	_, _ = claimed("first")

	sent, round := appended(plain)
	require.Equal(t, 1, round, "the registrations are those of the last transaction")
	got, round := claimed("first")
	require.Equal(t, 2, round, "the page, and the lease with the content")
	require.Len(t, got, 1)
	require.Equal(t, sent.CreatedAt, got[0].CreatedAt, "the time is that of the database, also where the record did not wait for it")
	ctx, seen := tapped(t.Context())
	require.NoError(t, s.Ack(ctx, "worker", []outmill.Lease{got[0].Lease()}))
	require.Len(t, seen.list(), 1)

	register(other, "second")
	_, round = appended(plain)
	require.Equal(t, 5, round, "one that writes nothing, the state, the fair topics, the registrations, and the insert")
	for _, group := range []string{"first", "second"} {
		got, _ = claimed(group)
		require.Len(t, got, 1, "what another process has registered gets the record: %s", group)
	}
	_, round = appended(plain)
	require.Equal(t, 1, round)
	_, round = appended(func(r *outmill.Record) { r.Delay = time.Hour })
	require.Equal(t, 1, round)
	_, round = appended(func(r *outmill.Record) { r.DueAt = time.Now().Add(time.Hour) })
	require.Equal(t, 2, round, "whether a certain time has come depends on the clock of the database")
}
