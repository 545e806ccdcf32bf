package driver_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// inCallers appends in a transaction of the pool, and returns the statements of each round trip.
func inCallers(t *testing.T, s opened, db *pgxpool.Pool, before string, records ...*outmill.Record) [][]any {
	t.Helper()
	var trips [][]any
	require.NoError(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), before); err != nil {
			return err
		}
		ctx, seen := tapped(t.Context())
		err := s.Append(s.driver.WithTx(ctx, tx), records...)
		trips = seen.list()
		return err
	}))
	return trips
}

// claimedFrom are the messages that a group gets by key.
func claimedFrom(t *testing.T, s opened, group string) []*outmill.Record {
	t.Helper()
	got, err := s.Claim(t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: group, Limit: 100, Lease: time.Minute, Order: outmill.OrderKey,
	})
	require.NoError(t, err)
	return got
}

func TestAppendWithin(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) (s opened, url string) {
		t.Helper()
		url = postgrestest.Database(t)
		s = storeOn(t, connect(t, url, 4, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} }))
		require.NoError(t, s.Ensure(t.Context()))
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "first"}))
		return s, url
	}
	delivered := func(t *testing.T, s opened) []string {
		t.Helper()
		var names []string
		for _, r := range claimedFrom(t, s, "readers") {
			names = append(names, r.MessageID)
		}
		return names
	}

	t.Run("an append in a caller's transaction is one round trip", func(t *testing.T) {
		t.Parallel()
		s, _ := open(t)
		_ = inCallers(t, s, s.db, "SELECT 1", &outmill.Record{Topic: "orders", MessageID: "a"})
		require.Len(t, inCallers(t, s, s.db, "SELECT 1", &outmill.Record{Topic: "orders", MessageID: "b", Key: "k"}), 1)
		require.Len(t, inCallers(t, s, s.db, "SELECT 1", &outmill.Record{Topic: "orders", MessageID: "c"},
			&outmill.Record{Topic: "orders", MessageID: "d"}), 1, "several")
		large := &outmill.Record{Topic: "orders", MessageID: "g", Payload: make([]byte, 1<<20)}
		require.Greater(t, len(inCallers(t, s, s.db, "SELECT 1", large)), 1,
			"a large one is compared with the limit of a statement before it is sent")
		require.Equal(t, []string{"first", "a", "b", "c", "d", "g"}, delivered(t, s))
	})

	t.Run("one whose registrations have changed reads them, and is delivered to each group once", func(t *testing.T) {
		t.Parallel()
		s, url := open(t)
		other := storeOn(t, connect(t, url, 2, nil))
		require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: "later"}))
		require.Greater(t, len(inCallers(t, s, s.db, "SELECT 1", &outmill.Record{Topic: "orders", MessageID: "a"})), 1)
		require.Equal(t, []string{"first", "a"}, delivered(t, s))
		require.Len(t, claimedFrom(t, s, "later"), 1)
		require.Len(t, inCallers(t, s, s.db, "SELECT 1", &outmill.Record{Topic: "orders", MessageID: "b"}), 1)
	})

	t.Run("it calls no function, operator or type of another schema, and leaves the caller's settings", func(t *testing.T) {
		t.Parallel()
		s, url := open(t)
		hostileSchema(t, s.db)
		for mode, change := range modes {
			db := connect(t, url, 1, func(c *pgxpool.Config) {
				inMode(change)(c)
				c.ConnConfig.Tracer = tap{}
				for setting, value := range hostile {
					c.ConnConfig.RuntimeParams[setting] = value
				}
				c.ConnConfig.RuntimeParams["search_path"] = "evil, pg_catalog"
			})
			trips := inCallers(t, s, db, "SELECT 1", &outmill.Record{
				Topic: "orders", MessageID: mode, Key: "k", TenantID: "t", CorrelationID: "c", Metadata: map[string]string{"a": "b"},
				Payload: []byte(mode),
			})
			require.LessOrEqual(t, len(trips), 2, mode)
			require.Equal(t, "evil, pg_catalog", valueOf[string](t, db, "SHOW search_path"))
		}
		got := claimedFrom(t, s, "readers")
		require.Len(t, got, 1+len(modes))
		for _, r := range got[1:] {
			require.Equal(t, r.MessageID, string(r.Payload))
			require.Equal(t, []string{"k", "t", "c", "b"}, []string{r.Key, r.TenantID, r.CorrelationID, r.Metadata["a"]})
		}
	})

	t.Run("a statement that the server cannot prepare ends the caller's transaction, as a statement of the caller does", func(t *testing.T) {
		t.Parallel()
		s, url := open(t)
		execute(t, s.db, "ALTER FUNCTION outmill.now() RENAME TO other_now")
		for mode, change := range modes {
			tx, err := connect(t, url, 1, inMode(change)).Begin(t.Context())
			require.NoError(t, err)
			ctx := s.driver.WithTx(t.Context(), tx)
			require.ErrorContains(t, s.Append(ctx, &outmill.Record{Topic: "orders"}), "now() does not exist", mode)
			require.ErrorIs(t, s.Append(ctx, &outmill.Record{Topic: "orders"}), outmill.ErrInvalidTx, mode)
			require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback, mode)
		}
	})

	t.Run("a transaction of which an append fails has nothing of it, and goes on from a savepoint of the caller's", func(t *testing.T) {
		t.Parallel()
		s, url := open(t)
		execute(t, s.db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN IF NEW.key = 'refused' THEN RAISE 'refused'; END IF; RETURN NEW; END $$`)
		for _, segment := range []string{"0", "1", "2"} {
			execute(t, s.db, "CREATE TRIGGER refuse BEFORE INSERT ON outmill.log_"+segment+" FOR EACH ROW EXECUTE FUNCTION refuse()")
		}
		refused := func(ctx context.Context) {
			require.ErrorContains(t, s.Append(ctx, &outmill.Record{Topic: "orders", Key: "refused"}), "refused")
			require.ErrorIs(t, s.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "late"}), outmill.ErrInvalidTx)
		}
		require.NoError(t, pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
			nested, err := tx.Begin(t.Context())
			require.NoError(t, err)
			refused(s.driver.WithTx(t.Context(), nested))
			require.NoError(t, nested.Rollback(t.Context()))
			return s.Append(s.driver.WithTx(t.Context(), tx), &outmill.Record{Topic: "orders", MessageID: "goes on"})
		}))
		for _, name := range []string{"pgx", "postgres"} {
			std, err := sql.Open(name, url)
			require.NoError(t, err)
			tx, err := std.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, s.Append(s.driver.WithTx(t.Context(), tx), &outmill.Record{Topic: "orders", MessageID: "gone"}))
			refused(s.driver.WithTx(t.Context(), tx))
			require.Error(t, tx.Commit(), name)
			require.NoError(t, std.Close())
		}
		require.Equal(t, "first goes on", strings.Join(delivered(t, s), " "))
	})

	t.Run("one that is rolled back leaves nothing, also in a savepoint of the caller's", func(t *testing.T) {
		t.Parallel()
		s, _ := open(t)
		require.NoError(t, pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
			nested, err := tx.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Append(s.driver.WithTx(t.Context(), nested), &outmill.Record{Topic: "orders", MessageID: "gone"}))
			require.NoError(t, nested.Rollback(t.Context()))
			return s.Append(s.driver.WithTx(t.Context(), tx), &outmill.Record{Topic: "orders", MessageID: "stays"})
		}))
		require.Equal(t, []string{"first", "stays"}, delivered(t, s))
	})

	t.Run("a plan of the driver's own transactions serves the callers' on the connection", func(t *testing.T) {
		t.Parallel()
		_, url := open(t)
		db := connect(t, url, 1, nil)
		s := storeOn(t, db)
		for range 2 {
			require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}))
		}
		const callers = 20
		for range callers {
			_ = inCallers(t, s, db, "SELECT 1", &outmill.Record{Topic: "orders"})
		}
		planned := valueOf[int](t, db, "SELECT custom_plans FROM pg_prepared_statements WHERE statement LIKE 'WITH /* outmill log_insert */%'")
		require.Less(t, planned, callers/2, "the server plans the first five anyway")
	})

	t.Run("the first append of a process needs the state", func(t *testing.T) {
		t.Parallel()
		_, url := open(t)
		db := connect(t, url, 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
		d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill"})
		s := opened{engine.New(d, engine.Config{}), d, db, "outmill"}
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.Greater(t, len(inCallers(t, s, db, "SELECT 1", &outmill.Record{Topic: "orders"})), 1)
		require.Len(t, inCallers(t, s, db, "SELECT 1", &outmill.Record{Topic: "orders"}), 1, "a process that only publishes")
	})

	t.Run("what a guess cannot insert notifies no more often than everything else", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		db := connect(t, url, 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
		pool := driver.PoolOf(db)
		settings, err := pool.Beside("", "")
		require.NoError(t, err)
		d := driver.New(pool, driver.Config{Name: "postgres", Schema: "outmill", Listen: settings, NotifyInterval: time.Hour})
		s := opened{engine.New(d, engine.Config{}), d, db, "outmill"}
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.Ensure(t.Context()))
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}))
		notified := 0
		for _, key := range []string{"a", "b", "c"} {
			for _, trip := range inCallers(t, s, db, "SELECT 1", &outmill.Record{Topic: "orders", DedupKey: key}) {
				for _, value := range trip {
					if text, ok := value.(string); ok && strings.Contains(text, "/* outmill notify */") {
						notified++
					}
				}
			}
		}
		require.Zero(t, notified)
	})
}
