package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

func TestStore_Crash(t *testing.T) {
	t.Parallel()

	// An owner that gives a record back continues with later records of its key, as soon as it
	// may. If the record were still leased to it after a crash, the later ones would be handed
	// out first.
	t.Run("a record that was given back is still pending after the server was killed", func(t *testing.T) {
		testenv.Long(t, "servers that take over, are killed or are restored")
		t.Parallel()
		server := postgrestest.Own(t, "wal_writer_delay=10s")
		store := newStore(t, connect(t, postgrestest.DatabaseOn(t, server.URL)), postgres.Config{NotifyInterval: -1})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		for name, giveBack := range map[string]func(ctx context.Context, leases []outmill.Lease) error{
			"released": store.Release,
			"abandoned": func(ctx context.Context, l []outmill.Lease) error {
				return store.Abandon(ctx, []outmill.Settlement{{Lease: l[0]}, {Lease: l[1]}})
			},
			"snoozed": func(ctx context.Context, l []outmill.Lease) error {
				return store.Snooze(ctx, []outmill.Settlement{{Lease: l[0]}, {Lease: l[1]}})
			},
			"failed": func(ctx context.Context, l []outmill.Lease) error {
				return store.Fail(ctx, []outmill.Settlement{{Lease: l[0]}, {Lease: l[1]}})
			},
			"parked": func(ctx context.Context, l []outmill.Lease) error {
				return store.Fail(ctx, []outmill.Settlement{{Lease: l[0], Park: true}, {Lease: l[1]}})
			},
		} {
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: name, Key: "key"}, &outmill.Record{Topic: name, Key: "key"}))
			found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderKey, name))
			require.Len(t, found, 2)
			// The append waits for the disk, and so the claim is on disk too.
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "others"}))
			require.NoError(t, giveBack(t.Context(), leasesOf(found)))
			require.NoError(t, server.Kill(t.Context()))
			require.NoError(t, server.Start(t.Context()))
			require.Eventually(t, func() bool {
				held, err := store.List(t.Context(), outmill.ListQuery{Topic: name, Status: outmill.StatusLeased})
				require.Empty(t, held, name)
				return err == nil
			}, time.Minute, 10*time.Millisecond)
		}
	})
}
