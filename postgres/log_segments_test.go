package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
)

// logged returns a store that appends to the log, in its own database.
func logged(t *testing.T) *postgres.Store {
	t.Helper()
	config := postgres.Config{Lane: postgres.LaneLog}
	store := newStore(t, readyPool(t, config), config)
	// The store's own notifications have snapshots too.
	store.HeedSnapshotsFor(0)
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return store
}

func segmentRows(t *testing.T, store *postgres.Store, segment int) int {
	t.Helper()
	return valueOf[int](t, store.Pool(), fmt.Sprintf("SELECT count(*) FROM outmill.log_%d", segment))
}

func moveOn(t *testing.T, store *postgres.Store, segment int) {
	t.Helper()
	execute(t, store.Pool(), fmt.Sprintf("UPDATE outmill.meta SET segment = %d", segment))
}

func claimSome(t *testing.T, store *postgres.Store, owner outmill.OwnerToken, n int) []*outmill.Record {
	t.Helper()
	found, err := store.Claim(t.Context(), outmill.ClaimRequest{Group: readers, Owner: owner, Limit: n, Lease: time.Hour})
	require.NoError(t, err)
	return found
}

func leasesFor(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

func TestStore_LogSegments(t *testing.T) {
	t.Parallel()

	t.Run("a segment is truncated once all of it is settled and not before", func(t *testing.T) {
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		truncated := func() bool {
			t.Helper()
			done, err := store.Truncate(ctx, 0)
			require.NoError(t, err)
			return done
		}
		late, err := store.Pool().Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, store.Append(store.WithTx(ctx, late), made("orders", "late", 1)...))
		require.NoError(t, store.Append(ctx, made("orders", "early", 3)...))
		moveOn(t, store, 1)
		require.False(t, truncated(), "a transaction that has written to it is open")

		owner := outmill.NewOwnerToken()
		first := claimSome(t, store, owner, 10)
		require.Len(t, first, 3)
		require.NoError(t, store.Ack(ctx, "", leasesFor(first)))
		require.False(t, truncated(), "the transaction is still open")
		require.NoError(t, late.Commit(ctx))
		require.False(t, truncated(), "its record has a place that was passed, and nobody has looked for it")

		second := claimSome(t, store, owner, 10)
		require.Len(t, second, 1)
		require.False(t, truncated(), "the record is in work")
		require.NoError(t, store.Ack(ctx, "", leasesFor(second)))
		require.True(t, truncated())
		require.Zero(t, segmentRows(t, store, 0))

		require.NoError(t, store.Append(ctx, made("orders", "after", 2)...))
		require.Equal(t, 2, segmentRows(t, store, 1))
		require.Len(t, claimSome(t, store, owner, 10), 2)
	})

	t.Run("nothing stays of a topic in the log that is written to no more", func(t *testing.T) {
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		owner := outmill.NewOwnerToken()
		require.NoError(t, store.Append(ctx, made("once", "m", 3)...))
		require.NoError(t, store.Append(ctx, made("orders", "m", 3)...))
		require.NoError(t, store.Ack(ctx, "", leasesFor(claimSome(t, store, owner, 10))))
		lines := func() int { return valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.batches") }
		require.NoError(t, store.ForgetLines(ctx))
		require.Equal(t, 2, lines(), "there are rows in the log that were handed out")

		moveOn(t, store, 1)
		late, err := store.Pool().Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, store.Append(store.WithTx(ctx, late), made("once", "late", 1)...))
		require.NoError(t, store.Append(ctx, made("orders", "more", 1)...))
		done, err := store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.True(t, done)
		claimSome(t, store, owner, 10)
		require.NoError(t, store.ForgetLines(ctx))
		require.NoError(t, store.ForgetLines(ctx), "from the first line on again")
		require.Equal(t, 1, valueOf[int](t, store.Pool(), "SELECT count(DISTINCT line) FROM outmill.batches"), "orders is in work")

		require.NoError(t, late.Commit(ctx))
		found := claimSome(t, store, owner, 10)
		require.Len(t, found, 1)
		require.Equal(t, "late-0", found[0].MessageID)
		require.Greater(t, valueOf[int](t, store.Pool(), "SELECT n FROM outmill.batches WHERE topic = 'once'"), 1,
			"a number that no lease of before has")
		require.NoError(t, store.Ack(ctx, "", leasesFor(found)))
		require.Empty(t, claimSome(t, store, owner, 10))
	})

	t.Run("a segment that another session reads is truncated later", func(t *testing.T) {
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		require.NoError(t, store.Append(ctx, made("orders", "m", 3)...))
		require.NoError(t, store.Ack(ctx, "", leasesFor(claimSome(t, store, outmill.NewOwnerToken(), 3))))
		moveOn(t, store, 1)
		reader, err := store.Pool().Begin(ctx)
		require.NoError(t, err)
		_, err = reader.Exec(ctx, "SELECT count(*) FROM outmill.log_0")
		require.NoError(t, err)
		done, err := store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.False(t, done)
		require.NoError(t, reader.Rollback(ctx))
		done, err = store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.True(t, done)
	})

	t.Run("records that a group does not read move to the table in their order and keep no segment", func(t *testing.T) {
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		const idle = "idle"
		require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: idle}))
		require.NoError(t, store.Append(ctx, made("orders", "m", 12)...))
		require.NoError(t, store.Ack(ctx, "", leasesFor(claimSome(t, store, outmill.NewOwnerToken(), 12))))
		leased, err := store.Claim(ctx, outmill.ClaimRequest{Group: idle, Owner: outmill.NewOwnerToken(), Limit: 2, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, leased, 2)
		moveOn(t, store, 1)
		done, err := store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.False(t, done)

		require.NoError(t, store.Evacuate(ctx, 0))
		done, err = store.Truncate(ctx, 0)
		require.NoError(t, err)
		require.True(t, done)
		require.NoError(t, store.Ack(ctx, "", leasesFor(leased)), "the leases stand")
		found, err := store.Claim(ctx,
			outmill.ClaimRequest{Group: idle, Owner: outmill.NewOwnerToken(), Limit: 20, Lease: time.Hour, Order: outmill.OrderKey})
		require.NoError(t, err)
		require.Len(t, found, 10)
		for i, r := range found {
			require.Equal(t, fmt.Sprintf("m-%d", i+2), r.MessageID)
		}
	})

	t.Run("upkeep goes from segment to segment and gives the space back", func(t *testing.T) {
		t.Parallel()
		store := logged(t)
		ctx := t.Context()
		owner := outmill.NewOwnerToken()
		execute(t, store.Pool(), "UPDATE outmill.meta SET rotated_at = rotated_at - interval '1 hour'")
		// Otherwise the server would compress it, or store it in a separate table.
		for segment := range 3 {
			execute(t, store.Pool(), fmt.Sprintf("ALTER TABLE outmill.log_%d ALTER COLUMN payload SET STORAGE PLAIN", segment))
		}
		payload := make([]byte, 7000)
		for round := range 3 {
			records := made("orders", fmt.Sprint("round", round, "-"), 1000)
			for _, r := range records {
				r.Payload = payload
			}
			require.NoError(t, store.Append(ctx, records...))
			require.NoError(t, store.TendSegments(ctx))
			require.NoError(t, store.Ack(ctx, "", leasesFor(claimSome(t, store, owner, 1000))))
			execute(t, store.Pool(), "UPDATE outmill.meta SET rotated_at = rotated_at - interval '1 hour'")
			require.NoError(t, store.TendSegments(ctx))
		}
		require.Zero(t, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.log"))
		require.Less(t, valueOf[int](t, store.Pool(),
			"SELECT pg_total_relation_size('outmill.log_0') + pg_total_relation_size('outmill.log_1') + pg_total_relation_size('outmill.log_2')"),
			10<<20)
	})

	t.Run("readers continue at their positions in a log that was restored on another server", func(t *testing.T) {
		t.Parallel()
		for name, cluster := range map[string]string{
			"of another identifier": "'another'", "of the same identifier": "cluster", "of which the identifier was not known": "''",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := logged(t)
				ctx := t.Context()
				owner := outmill.NewOwnerToken()
				late, err := store.Pool().Begin(ctx)
				require.NoError(t, err)
				require.NoError(t, store.Append(store.WithTx(ctx, late), made("orders", "late", 3)...))
				require.NoError(t, store.Append(ctx, made("orders", "done", 5)...))
				require.NoError(t, store.Ack(ctx, "", leasesFor(claimSome(t, store, owner, 10))))
				require.NoError(t, late.Commit(ctx))
				require.NoError(t, store.Append(ctx, made("orders", "new", 4)...))
				elsewhere(t, store, cluster)

				restored := newStore(t, store.Pool(), postgres.Config{})
				require.NoError(t, restored.Append(ctx, made("orders", "later", 2)...))
				var names []string
				for _, r := range claimSome(t, restored, owner, 100) {
					names = append(names, r.MessageID)
				}
				require.Equal(t, []string{"late-0", "late-1", "late-2", "new-0", "new-1", "new-2", "new-3", "later-0", "later-1"}, names)
				require.Empty(t, claimSome(t, restored, owner, 100))
			})
		}
	})

	t.Run("in a log of another server with the same identifier nothing is lost", func(t *testing.T) {
		testenv.Long(t, "servers that take over, are killed or are restored")
		t.Parallel()
		// The remaining records are late, and no new message makes anybody claim.
		late := func(t *testing.T, store *postgres.Store) {
			tx, err := store.Pool().Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, store.Append(store.WithTx(t.Context(), tx), made("orders", "late", 3)...))
			require.NoError(t, store.Append(t.Context(), made("orders", "done", 1)...))
			require.NoError(t, store.Ack(t.Context(), "", leasesFor(claimSome(t, store, outmill.NewOwnerToken(), 10))))
			require.NoError(t, tx.Commit(t.Context()))
			elsewhere(t, store, "cluster")
		}
		unread := func(t *testing.T, store *postgres.Store) {
			require.NoError(t, store.Append(t.Context(), made("orders", "unread", 3)...))
			elsewhere(t, store, "cluster")
		}
		for left, leave := range map[string]func(t *testing.T, store *postgres.Store){"late ones": late, "a topic that was never read": unread} {
			for name, read := range map[string]func(t *testing.T, store *postgres.Store) int{
				"a claim": func(t *testing.T, store *postgres.Store) int {
					return len(claimSome(t, store, outmill.NewOwnerToken(), 10))
				},
				"claims of many processes": func(t *testing.T, store *postgres.Store) (n int) {
					var found []<-chan result[[]*outmill.Record]
					for range 8 {
						other := newStore(t, store.Pool(), postgres.Config{})
						found = append(found, async(func() ([]*outmill.Record, error) {
							return other.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "orders"))
						}))
					}
					for _, some := range found {
						n += len(await(t, some))
					}
					return n
				},
				"the upkeep": func(t *testing.T, store *postgres.Store) int {
					store.HeedSnapshotsFor(0)
					moveOn(t, store, 1)
					done, err := store.Truncate(t.Context(), 0)
					require.NoError(t, err)
					require.False(t, done)
					require.NoError(t, store.Evacuate(t.Context(), 0))
					done, err = store.Truncate(t.Context(), 0)
					require.NoError(t, err)
					require.True(t, done)
					return len(claimSome(t, store, outmill.NewOwnerToken(), 10))
				},
			} {
				t.Run(name+" finds "+left, func(t *testing.T) {
					t.Parallel()
					store := logged(t)
					leave(t, store)
					require.Equal(t, 3, read(t, newStore(t, store.Pool(), postgres.Config{})))
				})
			}
		}
	})
}

// elsewhere makes the log look like that of another server, with numbers that this one will not
// reach for long.
func elsewhere(t *testing.T, store *postgres.Store, cluster string) {
	t.Helper()
	execute(t, store.Pool(), "UPDATE outmill.log SET xid = (xid::text::bigint + 1000000)::text::xid8")
	execute(t, store.Pool(), `UPDATE outmill.batches SET horizon = (horizon::text::bigint + 1000000)::text::xid8,
	seen = (SELECT (pg_snapshot_xmin(seen)::text::bigint + 1000000)::text || ':' || (pg_snapshot_xmax(seen)::text::bigint + 1000000)::text ||
	':'
		|| coalesce((SELECT string_agg((x::text::bigint + 1000000)::text, ',') FROM pg_snapshot_xip(seen) AS x), ''))::pg_snapshot`)
	execute(t, store.Pool(), "UPDATE outmill.meta SET cluster = "+cluster)
}
