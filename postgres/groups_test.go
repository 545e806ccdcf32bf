package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// An append to the log needs no registrations: one that writes records reads their generation again when it writes.
func byGroups(sql string) bool {
	return strings.Contains(sql, "/* outmill insert */") || strings.Contains(sql, "/* outmill log_insert")
}

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
			for where, delay := range kinds {
				t.Run(name+" "+where, func(t *testing.T) {
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
						group := fmt.Sprint("group", registered)
						registering.Go(func() { done <- store.RegisterGroup(t.Context(), outmill.Registration{Group: group}) })
						require.Eventually(t, func() bool {
							select {
							case err := <-done:
								require.NoError(t, err)
								return true
							default:
								return valueOf[bool](t, db, sqlWaits)
							}
						}, patience, time.Millisecond)
					}}
					publisher := newStore(t, connectAs(t, url, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer }),
						postgres.Config{NotifyInterval: -1})
					records := made("orders", "x", 3)
					for _, one := range records {
						one.Delay = delay
					}
					require.NoError(t, appendTo(publisher, t.Context(), records...))
					registering.Wait()
					require.NotZero(t, registered)
					req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)
					req.Group = "group1"
					require.Len(t, claimed(t, store, req), 3, "it had registered before")
				})
			}
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
		require.Equal(t, topics+1, valueOf[int](t, db, `SELECT count(*) FROM outmill.entries WHERE kind = 'registration'`))
		require.Equal(t, int(appended.Load()), valueOf[int](t, db, `SELECT (SELECT count(*) FROM outmill.log) + (SELECT count(*)
			FROM outmill.records)`))
	})

	t.Run("a registration that is renewed reads no other ones", func(t *testing.T) {
		t.Parallel()
		store, told := explained(t, readyDatabase(t, postgres.Config{}))
		require.NoError(t, store.Ensure(t.Context()))
		reg := outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{"orders"}}}
		require.NoError(t, store.RegisterGroup(t.Context(), reg))
		execute(t, store.Pool(), `INSERT INTO outmill.entries SELECT at, made_at, kind, key || g, value
			FROM outmill.entries, generate_series(1, 1000) AS g WHERE kind = 'registration'`)
		execute(t, store.Pool(), `ANALYZE outmill.entries`)
		for _, p := range told.of(t, func() { require.NoError(t, store.RegisterGroup(t.Context(), reg)) }) {
			p.Plan.each(func(n node) {
				if n.Relation == "entries" {
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
				first := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders")
				first.Group = "first"
				require.Len(t, claimed(t, store, first), 5)
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

// clone gives a server the data of another one.
func clone(t *testing.T, from, to *postgresengine.Engine) {
	t.Helper()
	require.NoError(t, from.Stop(t.Context(), postgresengine.Fast))
	require.NoError(t, to.Stop(t.Context(), postgresengine.Fast))
	copied := func(a, b string) {
		out, err := exec.CommandContext(t.Context(), "cp", "-a", a, b).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(to.Dir, "data")))
	copied(filepath.Join(from.Dir, "data"), filepath.Join(to.Dir, "data"))
	require.NoError(t, from.Start(t.Context()))
	require.NoError(t, to.Start(t.Context()))
}
