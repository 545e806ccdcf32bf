package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/postgres"
)

// Other users of the server have publications of all tables, functions in the search path,
// dumps during an upgrade, and databases in other encodings.

func TestStore_Neighbours(t *testing.T) {
	t.Parallel()

	t.Run("everything works where all tables are published", func(t *testing.T) {
		t.Parallel()
		for _, lane := range []postgres.Lane{postgres.LaneLog, postgres.LaneRows} {
			t.Run(string(lane), func(t *testing.T) {
				t.Parallel()
				db := pool(t)
				store := newStore(t, db, postgres.Config{Lane: lane, Retain: time.Hour})
				require.NoError(t, store.Ensure(t.Context()))
				execute(t, db, `CREATE PUBLICATION everything FOR ALL TABLES`)
				everything(t, store)
				require.NoError(t, store.TendSegments(t.Context()))
				require.NoError(t, store.TidyBatches(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				records := made("orders", "x", 3)
				require.NoError(t, store.Append(t.Context(), records...))
				n, err := store.Delete(t.Context(), records[2].ID)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			})
		}
	})

	t.Run("no statement calls functions that another user has put in the search path", func(t *testing.T) {
		t.Parallel()
		for _, lane := range []postgres.Lane{postgres.LaneLog, postgres.LaneRows} {
			t.Run(string(lane), func(t *testing.T) {
				t.Parallel()
				db := pool(t)
				execute(t, db, hijacks)
				store := newStore(t, db, postgres.Config{Lane: lane, Retain: time.Hour})
				require.NoError(t, store.Ensure(t.Context()))
				everything(t, store)
				require.NoError(t, store.TendSegments(t.Context()))
				require.NoError(t, store.TidyBatches(t.Context()))
				require.NoError(t, store.DeleteBatches(t.Context()))
				require.NoError(t, store.ForgetLines(t.Context()))
				many := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)
				many.Topics = hundreds()
				require.Empty(t, claimed(t, store, many))
			})
		}
	})

	t.Run("a migration that waits for a dump leaves nearly all of the time to others", func(t *testing.T) {
		t.Parallel()
		database := readyDatabase(t, postgres.Config{})
		db := connect(t, database)
		store := newStore(t, db, postgres.Config{})
		require.NoError(t, store.Ensure(t.Context()))
		dump, err := db.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = dump.Rollback(context.WithoutCancel(t.Context())) }()
		_, err = dump.Exec(t.Context(), `LOCK TABLE outmill.meta IN ACCESS SHARE MODE`)
		require.NoError(t, err)
		traced, told := tracedPool(t, database)
		log := journal.New()
		upgrading, err := postgres.New(traced, postgres.Config{}, log)
		require.NoError(t, err)
		defer func() { require.NoError(t, upgrading.Close()) }()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() {
			ended <- upgrading.EnsureFrom(ctx, later(t, "ALTER TABLE {p:meta} ADD COLUMN later text NOT NULL DEFAULT 'x';\n"))
		}()
		refused := func() []span { return told.spans("ADD COLUMN later") }
		require.Eventually(t, func() bool { return len(refused()) >= 2 }, time.Minute, 10*time.Millisecond)
		spans := refused()
		wait, pause := spans[0].ended.Sub(spans[0].began), spans[1].began.Sub(spans[0].ended)
		require.Greater(t, pause, 5*wait, "it waited for %s, and let others pass for %s", wait, pause)
		require.Len(t, log.Lines(watermill.InfoLogLevel), 1, "it says once for whom it waits")
		require.NoError(t, store.Append(t.Context(), made("orders", "beside", 1)...))
		require.NoError(t, dump.Rollback(t.Context()))
		require.NoError(t, <-ended)
	})

	t.Run("a database that is not in UTF 8 is refused", func(t *testing.T) {
		t.Parallel()
		admin := pool(t)
		name := "latin_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
		execute(t, admin, fmt.Sprintf(`CREATE DATABASE %s ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`, name))
		t.Cleanup(func() {
			_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+name+" WITH (FORCE)")
			require.NoError(t, err)
		})
		u, err := url.Parse(admin.Config().ConnString())
		require.NoError(t, err)
		u.Path = "/" + name
		store := newStore(t, connect(t, u.String()), postgres.Config{NotifyInterval: -1})
		for what, call := range map[string]func() error{
			"ensure": func() error { return store.Ensure(t.Context()) },
			"append": func() error { return store.Append(t.Context(), made("orders", "x", 1)...) },
		} {
			err := call()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, what)
			require.ErrorContains(t, err, "LATIN1", what)
		}
		require.Zero(t, valueOf[int](t, store.Pool(), "SELECT count(*) FROM pg_namespace WHERE nspname = 'outmill'"))
	})

	t.Run("a poll of a group costs the same among many lines of others", func(t *testing.T) {
		t.Parallel()
		database := readyDatabase(t, postgres.Config{Lane: postgres.LaneLog})
		db := connect(t, database)
		store := newStore(t, db, postgres.Config{NotifyInterval: -1, Lane: postgres.LaneLog})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		e := explainedAs(t, database, "auto", postgres.Config{NotifyInterval: -1})
		lines := func(from, to int) {
			execute(t, db, `INSERT INTO outmill.log (line, id, created_at, size, segment, grp, topic, key, message_id, payload)
SELECT outmill.line_of('g' || g % 100, 't' || g), gen_random_uuid(), now(), 100, 0, 'g' || g % 100, 't' || g, '', 'm' || g, '\x00'
FROM generate_series($1::integer, $2::integer) AS g`, from, to)
			execute(t, db, `INSERT INTO outmill.batches (line, n, pos, seen, horizon, since, low, owner, token, open, steps, grp, topic, done,
				positions, keys)
SELECT line, 1, pos, pg_current_snapshot(), pg_current_xact_id(), '{-1}', 1, gen_random_uuid(), 1, 0, false, grp, topic, '', '{}',
NULL FROM outmill.log WHERE topic LIKE 't%' ON CONFLICT DO NOTHING`)
		}
		once := func() int {
			read := 0
			for _, p := range e.told.of(t, func() {
				e.store.LookAgain()
				require.Empty(t, claimed(t, e.store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)))
			}) {
				read += p.Plan.Hit + p.Plan.Read
			}
			return read
		}
		// After an ANALYZE a session plans again, and reads the catalog.
		poll := func() int { return min(once(), once(), once()) }
		lines(1, 100)
		for range warm {
			once()
		}
		few := poll()
		lines(101, 4000)
		many := poll()
		t.Logf("a poll reads %d blocks beside 100 lines of others, %d beside 4,000", few, many)
		require.Less(t, many, 2*few+50)
	})

	t.Run("a group s lines are next to each other", func(t *testing.T) {
		t.Parallel()
		db := logged(t).Pool()
		for _, group := range []string{"readers", "übung", strings.Repeat("g", 200)} {
			first := valueOf[int64](t, db, `SELECT outmill.log_first_line($1)`, group)
			var lines []int64
			for i := range 100 {
				topic := fmt.Sprint("topic ", i)
				line := valueOf[int64](t, db, `SELECT outmill.line_of($1, $2)`, group, topic)
				require.Equal(t, postgres.LineOf(group, topic), line)
				require.Equal(t, first>>48, line>>48)
				lines = append(lines, line)
			}
			slices.Sort(lines)
			require.Len(t, slices.Compact(lines), 100)
		}
	})
}

// hijacks are functions and operators that fit the arguments of statements better than
// PostgreSQL's own, which take any array or a wider number.
const hijacks = `
CREATE FUNCTION public.cardinality(bigint[]) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: cardinality'; END $$;
CREATE FUNCTION public.cardinality(integer[]) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: cardinality'; END $$;
CREATE FUNCTION public.cardinality(text[]) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: cardinality'; END $$;
CREATE FUNCTION public.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: unnest'; END $$;
CREATE FUNCTION public.unnest(integer[]) RETURNS SETOF integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: unnest'; END $$;
CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: unnest'; END $$;
CREATE FUNCTION public.unnest(uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: unnest'; END $$;
CREATE FUNCTION public.array_position(bigint[],
bigint) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: array_position'; END $$;
CREATE FUNCTION public.hashtextextended(text,
integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: hashtextextended'; END $$;
CREATE FUNCTION public.contains(bigint[], bigint[]) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: @>'; END $$;
CREATE OPERATOR public.@> (LEFTARG = bigint[], RIGHTARG = bigint[], FUNCTION = public.contains);
CREATE FUNCTION public.times(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: *'; END $$;
CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.times);
CREATE FUNCTION public.same(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: ='; END $$;
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.same);
CREATE FUNCTION public.joined(text, uuid) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: ||'; END $$;
CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = uuid, FUNCTION = public.joined);
CREATE FUNCTION public.joined(bigint, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked: ||'; END $$;
CREATE OPERATOR public.|| (LEFTARG = bigint, RIGHTARG = text, FUNCTION = public.joined);`
