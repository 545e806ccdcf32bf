package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

func TestStore_Schema(t *testing.T) {
	t.Parallel()

	t.Run("a store works in a schema of any name", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		for _, config := range []postgres.Config{
			{Schema: `Or ders"x`},
			{Schema: "select"},
			{Schema: "{p:records}"},
			{Schema: "größe; --'$1 \\ %s\n", TablePrefix: "_Shop1_"},
			{Schema: strings.Repeat("s", 63), TablePrefix: strings.Repeat("P", 40), Retain: time.Hour},
			{Schema: "public", TablePrefix: "outbox_"},
			{Schema: "pg_like"[3:], NotifyInterval: -1},
		} {
			t.Run(fmt.Sprintf("%q %s", config.Schema, config.TablePrefix), func(t *testing.T) {
				t.Parallel()
				store := newStore(t, db, config)
				require.ErrorIs(t, store.Append(t.Context(), made("orders", "x", 1)...), outmill.ErrSchemaMissing)
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.Ensure(t.Context()))
				everything(t, store)
			})
		}
	})

	t.Run("stores of other prefixes and schemas do not see each other", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		var stores []*postgres.Store
		for _, config := range []postgres.Config{
			{}, {TablePrefix: "a_"}, {TablePrefix: "A_"}, {Schema: "other"}, {Schema: "Other"}, {Schema: "other", TablePrefix: "a_"},
		} {
			store := newStore(t, db, config)
			require.ErrorIs(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}), outmill.ErrSchemaMissing)
			require.NoError(t, store.Ensure(t.Context()))
			stores = append(stores, store)
		}
		owner := outmill.NewOwnerToken()
		for i, store := range stores {
			require.NoError(t, store.RegisterGroup(t.Context(),
				outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{fmt.Sprint("topic", i)}}}))
			record := made(fmt.Sprint("topic", i), "x", 1)
			record[0].DedupKey, record[0].Key = "same", "same"
			require.NoError(t, store.Append(t.Context(), record...))
			require.False(t, record[0].Duplicate)
		}
		for i, store := range stores {
			groups, err := store.Groups(t.Context())
			require.NoError(t, err)
			require.Len(t, groups, 1)
			found := claimed(t, store, claimOf(owner, 10, outmill.OrderKey))
			require.Len(t, found, 1)
			require.Equal(t, fmt.Sprint("topic", i), found[0].Topic)
		}
	})

	t.Run("a wake up is for the stores of one schema and prefix", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		store := newStore(t, connect(t, url), postgres.Config{})
		stranger := newStore(t, connect(t, url), postgres.Config{TablePrefix: "other_"})
		sibling := newStore(t, connect(t, url), postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, stranger.Ensure(t.Context()))
		deaf, told := testenv.Hints(t.Context(), stranger), testenv.Hints(t.Context(), sibling)
		// Each gets a first notification when it begins to listen.
		<-deaf
		<-told
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			return store.Append(ctx, made("orders", "x", 1)...)
		}))
		<-told
		select {
		case <-deaf:
			t.Error("told of what another store has")
		default:
		}
	})

	t.Run("ten processes ensure at once a schema that does not exist", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		var wait sync.WaitGroup
		for range 10 {
			wait.Go(func() {
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild_Ensures$")
				child.Env = append(os.Environ(), ensureChild+"="+url)
				out, err := child.CombinedOutput()
				if err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wait.Wait()
		require.Equal(t, 10, valueOf[int](t, connect(t, url),
			`SELECT (SELECT count(*) FROM "not there yet".records) + (SELECT count(*) FROM "not there yet".log)`))
	})

	t.Run("ten stores of one process ensure at once", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		var wait sync.WaitGroup
		for range 10 {
			store := newStore(t, connect(t, url), postgres.Config{})
			wait.Go(func() {
				if err := store.Ensure(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	})

	t.Run("a schema is upgraded while publishers and workers run", func(t *testing.T) {
		testenv.Long(t, "a schema that is upgraded under load")
		t.Parallel()
		url := postgrestest.Database(t)
		db := connect(t, url)
		store := newStore(t, db, postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		const before = 2000
		require.NoError(t, store.Append(t.Context(), made("orders", "before", before)...))

		r := &running{t: t, store: store, upgraded: make(chan struct{}), seen: map[string]int{}}
		var writers, workers sync.WaitGroup
		for i := range 4 {
			writers.Go(func() { r.publish(fmt.Sprint("writer", i), i%2 == 0) })
		}
		for i := range 3 {
			workers.Go(func() { r.work(outmill.Order(i % 2)) })
		}
		r.awaitDeliveries(before / 4)
		require.NoError(t, newStore(t, connect(t, url), postgres.Config{}).EnsureFrom(t.Context(), later(t, rewriting)))
		r.awaitDeliveries(before / 4)
		close(r.upgraded)
		writers.Wait()
		r.mu.Lock()
		r.written += before
		r.finished = true
		r.mu.Unlock()
		workers.Wait()

		require.Len(t, r.seen, r.written)
		for name, n := range r.seen {
			require.Equal(t, 1, n, name)
		}
		require.Equal(t, 2, valueOf[int](t, db, "SELECT version FROM outmill.meta"))
		require.Zero(t, valueOf[int](t, db, "SELECT count(*) FROM outmill.records WHERE note = ''"))
	})

	t.Run("a migration that fails leaves the schema as it was", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		store := newStore(t, db, postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		before := describe(t, db, "outmill")
		err := store.EnsureFrom(t.Context(), later(t, rewriting+"SELECT 1 / 0;\n"))
		require.ErrorContains(t, err, "division by zero")
		require.ErrorContains(t, err, "version 2")
		require.Equal(t, before, describe(t, db, "outmill"))
		require.Equal(t, 1, valueOf[int](t, db, "SELECT version FROM outmill.meta"))
		everything(t, store)
		require.NoError(t, store.EnsureFrom(t.Context(), later(t, rewriting)))
		everything(t, store)
	})

	t.Run("a schema that cannot be created whole is not created", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		store := newStore(t, db, postgres.Config{})
		require.ErrorContains(t, store.EnsureFrom(t.Context(), later(t, "SELECT 1 / 0;\n")), "division by zero")
		require.Zero(t, valueOf[int](t, db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'outmill'"))
		require.NoError(t, store.Ensure(t.Context()))
		everything(t, store)
	})

	t.Run("a migration lets others pass while it waits for a lock", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		db := connect(t, url)
		store := newStore(t, db, postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.Append(store.WithTx(t.Context(), tx), made("orders", "open", 1)...))
		ended := make(chan error, 1)
		go func() {
			ended <- newStore(t, connect(t, url), postgres.Config{}).EnsureFrom(context.WithoutCancel(t.Context()), later(t, rewriting))
		}()
		require.Eventually(t, func() bool {
			return valueOf[int](t, db,
				"SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") > 0
		}, time.Minute, time.Millisecond)
		// The append waits behind the migration, which lets it pass.
		require.NoError(t, store.Append(t.Context(), made("orders", "other", 1)...))
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-ended)
	})

	t.Run("an older program works with a newer schema that allows it", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		db := connect(t, url)
		store := newStore(t, db, postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.EnsureFrom(t.Context(), later(t, rewriting)))

		fresh := newStore(t, connect(t, url), postgres.Config{})
		require.NoError(t, fresh.Ensure(t.Context()))
		everything(t, fresh)
		everything(t, store)

		written := func() int {
			return valueOf[int](t, db, "SELECT (SELECT count(*) FROM outmill.records) + (SELECT count(*) FROM outmill.log)")
		}
		before := written()
		execute(t, db, "UPDATE outmill.meta SET compatible = 2")
		newer := newStore(t, connect(t, url), postgres.Config{})
		require.ErrorIs(t, newer.Ensure(t.Context()), outmill.ErrSchemaNewer)
		require.ErrorIs(t, newer.Append(t.Context(), made("orders", "x", 1)...), outmill.ErrSchemaNewer)
		require.ErrorIs(t, newer.RegisterGroup(t.Context(), outmill.Registration{Group: readers}), outmill.ErrSchemaNewer)
		_, err := newer.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.ErrorIs(t, err, outmill.ErrSchemaNewer)
		require.ErrorIs(t, store.Append(t.Context(), made("orders", "x", 1)...), outmill.ErrSchemaNewer,
			"a program that runs already notices at its next append")
		require.Equal(t, before, written())
	})

	t.Run("the printed statements make the schema that ensure makes", func(t *testing.T) {
		t.Parallel()
		ensured, printed := pool(t), pool(t)
		for _, config := range []postgres.Config{{}, {Schema: `Or ders"x`, TablePrefix: "p_"}} {
			store := newStore(t, ensured, config)
			require.NoError(t, store.Ensure(t.Context()))
			_, err := printed.Exec(t.Context(), strings.Join(store.Statements(), ";\n")+";", pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			schema := config.Schema
			if schema == "" {
				schema = "outmill"
			}
			want := describe(t, ensured, schema)
			require.Greater(t, len(want), 50)
			require.Equal(t, want, describe(t, printed, schema))
			user := newStore(t, printed, config)
			require.NoError(t, user.Ensure(t.Context()))
			everything(t, user)
		}
	})

	t.Run("the stores of two schemas have names that tell them apart", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		names := map[string]bool{}
		for _, config := range []postgres.Config{{}, {Schema: "shop"}, {Schema: "bank"}, {Schema: postgres.DefaultSchema}} {
			store, err := postgres.Open(t.Context(), url, config, nil)
			require.NoError(t, err)
			names[store.Name()] = true
			require.NoError(t, store.Close())
		}
		require.Len(t, names, 3, "%v", names)
	})
}

const ensureChild = "OUTMILL_TEST_ENSURE_IN_A_CHILD"

func TestChild_Ensures(t *testing.T) {
	url := os.Getenv(ensureChild)
	if url == "" {
		t.Skip("skipped: it is for the child of another test")
	}
	store := newStore(t, connect(t, url), postgres.Config{Schema: "not there yet"})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.Append(t.Context(), made("orders", "x", 1)...))
}

// later are the migrations of a later program.
func later(t *testing.T, statements string) fs.FS {
	t.Helper()
	files := fstest.MapFS{"schema/0002_later.sql": &fstest.MapFile{Data: []byte(statements + "UPDATE {p:meta} SET version = 2;\n")}}
	entries, err := fs.ReadDir(postgres.SchemaFiles(), "schema")
	require.NoError(t, err)
	for _, entry := range entries {
		text, err := fs.ReadFile(postgres.SchemaFiles(), "schema/"+entry.Name())
		require.NoError(t, err)
		files["schema/"+entry.Name()] = &fstest.MapFile{Data: text}
	}
	return files
}

// rewriting locks the table for a while, and changes the result of plans, which become stale.
const rewriting = `DROP VIEW {p:readable};
ALTER TABLE {p:records} ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE {p:records} ALTER COLUMN attempts TYPE bigint, ALTER COLUMN claims TYPE bigint, ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX {i:noted} ON {p:records} (note) WHERE note <> '';
CREATE VIEW {p:readable} AS SELECT id FROM {p:records};
`

// running has publishers and workers of a program, and their observations.
type running struct {
	t        *testing.T
	store    *postgres.Store
	upgraded chan struct{}

	mu       sync.Mutex
	written  int
	finished bool
	seen     map[string]int
}

func (r *running) publish(name string, inTx bool) {
	for i := 0; ; i++ {
		select {
		case <-r.upgraded:
			return
		default:
		}
		records := made("orders", fmt.Sprint(name, "-", i), 20)
		for _, delayed := range records[:10] {
			delayed.Delay = time.Microsecond // so that it is in the table of records
		}
		write := func(ctx context.Context, _ pgx.Tx) error { return r.store.Append(ctx, records...) }
		err := write(r.t.Context(), nil)
		if inTx && err == nil {
			records = made("orders", fmt.Sprint(name, "-tx-", i), 20)
			if err = r.store.InTx(r.t.Context(), write); err == nil {
				r.wrote(20)
			}
		}
		if err != nil {
			r.t.Errorf("publish: %v", err)
			return
		}
		r.wrote(20)
	}
}

func (r *running) wrote(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written += n
}

func (r *running) work(order outmill.Order) {
	owner := outmill.NewOwnerToken()
	for {
		r.mu.Lock()
		done := r.finished && len(r.seen) >= r.written
		r.mu.Unlock()
		if done || r.t.Failed() || r.t.Context().Err() != nil {
			return
		}
		found, err := r.store.Claim(r.t.Context(), claimOf(owner, 50, order))
		if err == nil {
			err = r.store.Ack(r.t.Context(), "", leasesOf(found))
		}
		if err != nil {
			r.t.Errorf("work: %v", err)
			return
		}
		r.mu.Lock()
		for _, record := range found {
			r.seen[record.MessageID]++
		}
		r.mu.Unlock()
	}
}

// awaitDeliveries waits for n deliveries from now on, as long as some come.
func (r *running) awaitDeliveries(n int) {
	r.t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.seen)
	}
	for now, until := count(), count()+n; now < until && !r.t.Failed(); now = count() {
		require.Eventually(r.t, func() bool { return count() > now || r.t.Failed() }, time.Minute, time.Millisecond, "%d are missing", until-now)
	}
}

// describe lists everything that a schema has.
func describe(t *testing.T, db *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default, collation_name, is_identity, identity_generation,
ordinal_position)
FROM information_schema.columns WHERE table_schema = $1
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1
UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = (SELECT oid FROM pg_namespace
WHERE nspname = $1)
UNION ALL SELECT relname || relkind::text || coalesce(reloptions::text, '') FROM pg_class WHERE relnamespace = (SELECT oid
FROM pg_namespace WHERE nspname = $1)
UNION ALL SELECT viewname || definition FROM pg_views WHERE schemaname = $1`, schema)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	slices.Sort(lines)
	return lines
}
