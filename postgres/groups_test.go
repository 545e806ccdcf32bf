package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// changing calls change before each statement that depends on the registered groups.
type changing struct {
	*gates
	change func()
}

func (c *changing) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return byGroups(q.SQL) }) {
		c.change()
	}
	return ctx
}

func (c *changing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if byGroups(data.SQL) {
		c.change()
	}
	return ctx
}

func byGroups(sql string) bool { return strings.Contains(sql, "generation = $1") }

// appends append in a transaction of the store's own, and in a caller's.
var appends = map[string]func(store *postgres.Store, ctx context.Context, records ...*outmill.Record) error{
	"of its own": (*postgres.Store).Append,
	"in a caller's transaction": func(store *postgres.Store, ctx context.Context, records ...*outmill.Record) error {
		return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return store.Append(ctx, records...) })
	},
}

func TestStore_Groups(t *testing.T) {
	t.Parallel()

	t.Run("an append succeeds though a group registers before each of its attempts", func(t *testing.T) {
		t.Parallel()
		for name, appendTo := range appends {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				url := readyDatabase(t, postgres.Config{})
				db := connect(t, url)
				store := newStore(t, db, postgres.Config{NotifyInterval: -1})
				require.NoError(t, store.Ensure(t.Context()))
				var registering sync.WaitGroup
				registered := 0
				tracer := &changing{gates: &gates{}, change: func() {
					registered++
					done := make(chan error, 1)
					name := fmt.Sprint("group", registered)
					registering.Go(func() { done <- store.RegisterGroup(t.Context(), outmill.Registration{Group: name}) })
					require.Eventually(t, func() bool {
						select {
						case err := <-done:
							require.NoError(t, err)
							return true
						default:
							return valueOf[int](t, db, `SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
								AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
						}
					}, patience, time.Millisecond)
				}}
				publisher := newStore(t, connectAs(t, url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer }),
					postgres.Config{NotifyInterval: -1})
				require.NoError(t, appendTo(publisher, t.Context(), made("orders", "x", 3)...))
				registering.Wait()
				require.Equal(t, 4, registered, "the fourth waits for the append")
				require.Equal(t, 9, valueOf[int](t, db, `SELECT (SELECT count(*) FROM outmill.log) + (SELECT count(*) FROM outmill.records)`),
					"three messages for each of the three that had registered")
			})
		}
	})

	t.Run("no append fails while subscribers of many topics register", func(t *testing.T) {
		t.Parallel()
		db := readyPool(t, postgres.Config{})
		store := newStore(t, db, postgres.Config{NotifyInterval: -1})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "forwarder"}))
		topics := testenv.Steps(100, 570)
		var done atomic.Bool
		var registering, publishing sync.WaitGroup
		const pods = 5
		for pod := range pods {
			store := newStore(t, db, postgres.Config{NotifyInterval: -1})
			registering.Go(func() {
				for n := range topics / pods {
					topic := fmt.Sprintf("topic %d %d", pod, n)
					require.NoError(t, store.RegisterGroup(t.Context(),
						outmill.Registration{Group: "billing", Topics: outmill.Topics{Include: []string{topic}}}))
				}
			})
		}
		var appended atomic.Int64
		for range 2 {
			publisher := newStore(t, db, postgres.Config{NotifyInterval: -1})
			publishing.Go(func() {
				for !done.Load() {
					require.NoError(t, publisher.Append(t.Context(), made("orders", "x", 1)...))
					require.NoError(t, publisher.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
						return publisher.Append(ctx, made("orders", "x", 1)...)
					}))
					appended.Add(2)
				}
			})
		}
		registering.Wait()
		done.Store(true)
		publishing.Wait()
		require.Equal(t, topics+1, valueOf[int](t, db, `SELECT count(*) FROM outmill.groups`))
		require.Equal(t, int(appended.Load()), valueOf[int](t, db, `SELECT (SELECT count(*) FROM outmill.log) + (SELECT count(*)
			FROM outmill.records)`))
	})

	t.Run("a registration that is renewed reads no other ones", func(t *testing.T) {
		t.Parallel()
		told := explainedAs(t, readyDatabase(t, postgres.Config{}), "auto", postgres.Config{NotifyInterval: -1})
		require.NoError(t, told.store.Ensure(t.Context()))
		reg := outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{"orders"}}}
		require.NoError(t, told.store.RegisterGroup(t.Context(), reg))
		execute(t, told.store.Pool(), `INSERT INTO outmill.groups (grp, selection, include, exclude, seen_at)
			SELECT 'g' || g % 10, 's' || g, ARRAY['topic' || g], '{}', now() FROM generate_series(1, 1000) AS g`)
		for _, p := range told.told.of(t, func() { require.NoError(t, told.store.RegisterGroup(t.Context(), reg)) }) {
			p.Plan.each(func(n node) {
				if n.Relation == "groups" {
					require.Less(t, n.read(), 10, "%s", p.Text)
				}
			})
		}
	})

	// The replica has all data except the registration of lost. Another group is the first to
	// register on it.
	t.Run("after a failover to a replica that was behind publishers write for the groups that are there", func(t *testing.T) {
		testenv.Long(t, "servers that take over, are killed or are restored")
		t.Parallel()
		for name, appendTo := range appends {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				primary, replica := postgrestest.Own(t), postgrestest.Own(t)
				url := postgrestest.DatabaseOn(t, primary.URL)
				db := connect(t, url)
				store := newStore(t, db, postgres.Config{NotifyInterval: -1})
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				require.NoError(t, store.Append(t.Context(), made("orders", "before", 1)...))
				clone(t, primary, replica)
				db.Reset()
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "lost"}))
				require.NoError(t, appendTo(store, t.Context(), made("orders", "lost", 2)...))
				require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders")), 3)

				// The process continues, at the same address.
				becomes(t, primary, replica)
				db.Reset()
				other := newStore(t, db, postgres.Config{NotifyInterval: -1})
				require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: "first"}))
				require.NoError(t, appendTo(store, t.Context(), made("orders", "after", 5)...))
				require.Equal(t, "first: 5, readers: 6", valueOf[string](t, db, `SELECT string_agg(grp || ': ' || n, ', ' ORDER BY grp)
					FROM (SELECT grp, count(*) AS n FROM outmill.log GROUP BY grp) AS x`))
				require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders")), 6,
					"nothing is taken for read that the replica did not have")
			})
		}
	})
}

// becomes makes a server continue with the data of another one, which ends.
func becomes(t *testing.T, primary, replica *postgresengine.Engine) {
	t.Helper()
	clone(t, replica, primary)
}
