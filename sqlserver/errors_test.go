package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Errors(t *testing.T) {
	t.Parallel()

	t.Run("an error of the server is wrapped with the store and the operation", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{Name: "shop"})
		first, again := one("first"), one("again")
		require.NoError(t, store.Append(t.Context(), first))
		again.ID = first.ID
		err := store.Append(t.Context(), again)
		var of mssql.Error
		require.ErrorAs(t, err, &of)
		require.ErrorContains(t, err, "outmill/sqlserver: shop append: ")
		require.NotErrorIs(t, err, outmill.ErrSchemaMissing)
		require.Equal(t, []string{"first"}, listed(t, store))
	})

	t.Run("an append whose connection is cut fails or is complete", func(t *testing.T) {
		t.Parallel()
		direct, table := ensured(t, sqlserver.Config{})
		store, p := through(t, sqlserver.Config{Table: table})
		require.NoError(t, store.Append(t.Context(), one("before")))
		p.LoseAnswers()
		err := store.Append(t.Context(), made("orders", "doubtful", 5)...)
		// It is not known whether the append was committed, so it is not repeated: a repeat could
		// append the record twice.
		require.Error(t, err)
		require.Contains(t, []int{1, 6}, len(listed(t, direct)))
		require.NoError(t, store.Append(t.Context(), one("after")), "the pool has a new connection")
	})

	t.Run("a caller's transaction whose connection is cut leaves nothing", func(t *testing.T) {
		t.Parallel()
		direct, table := ensured(t, sqlserver.Config{})
		store, p := through(t, sqlserver.Config{Table: table})
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx := store.WithTx(t.Context(), tx)
		require.NoError(t, store.Append(ctx, one("first")))
		p.CutAll()
		require.Error(t, store.Append(ctx, one("second")))
		require.Error(t, tx.Commit())
		require.NoError(t, store.Append(t.Context(), one("after")))
		require.Equal(t, []string{"after"}, listed(t, direct))
	})

	t.Run("a session that is killed loses its transaction and no record of others", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), one("before")))
		var spid int
		err := store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, tx.QueryRowContext(ctx, "SELECT @@SPID").Scan(&spid))
			require.NoError(t, store.Append(ctx, one("never")))
			execute(t, store.DB(), fmt.Sprint("KILL ", spid))
			return store.Append(ctx, one("never either"))
		})
		require.Error(t, err)
		require.Equal(t, []string{"before"}, listed(t, store))
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)), 1)
	})

	t.Run("nothing is lost while connections are cut again and again", func(t *testing.T) {
		t.Parallel()
		const n = 30
		direct, table := ensured(t, sqlserver.Config{Retain: time.Hour})
		store, p := through(t, sqlserver.Config{Table: table, Retain: time.Hour})
		require.NoError(t, direct.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, direct.Append(t.Context(), made("orders", "x", n)...))

		// One of two workers cuts the connections of both while they claim and ack, after an
		// answer or before it.
		var workers sync.WaitGroup
		for worker := range 2 {
			workers.Go(func() {
				owner := outmill.NewOwnerToken()
				for round := range 8 {
					found, err := store.Claim(t.Context(), claimOf(owner, 3, outmill.OrderKey))
					switch {
					case worker == 0 && round%4 == 1:
						p.LoseAnswers()
					case worker == 0 && round%4 == 3:
						p.CutAll()
					}
					if err == nil {
						_ = store.Ack(t.Context(), "", leasesOf(found))
					}
				}
			})
		}
		workers.Wait()
		// A record that a worker does not know it has can be claimed again when the lease ends.
		passTime(t, direct.DB(), table, 2*time.Minute)
		for found := claimed(t, direct, claimOf(outmill.NewOwnerToken(), n, outmill.OrderKey)); len(found) > 0; found = claimed(t, direct,
			claimOf(outmill.NewOwnerToken(), n, outmill.OrderKey)) {
			require.NoError(t, direct.Ack(t.Context(), "", leasesOf(found)))
		}
		processed, err := direct.List(t.Context(), outmill.ListQuery{Status: outmill.StatusProcessed})
		require.NoError(t, err)
		require.Len(t, processed, n)
	})
}

// through is a store on the tables of another store, whose connections go through a proxy.
func through(t *testing.T, config sqlserver.Config) (*sqlserver.Store, *proxy.Proxy) {
	t.Helper()
	parsed, err := url.Parse(sharedURL(t))
	require.NoError(t, err)
	p := proxy.New(t, parsed.Host)
	parsed.Host = p.Addr()
	return newStore(t, connect(t, parsed.String()), config), p
}
