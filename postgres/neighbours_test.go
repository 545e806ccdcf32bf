package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
		db := pool(t)
		store := newStore(t, db, postgres.Config{Retain: time.Hour})
		require.NoError(t, store.Ensure(t.Context()))
		execute(t, db, `CREATE PUBLICATION everything FOR ALL TABLES`)
		everything(t, store)
		maintained(t, store)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		records := made("orders", "x", 3)
		require.NoError(t, store.Append(t.Context(), records...))
		n, err := store.Delete(t.Context(), records[2].ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})

	t.Run("no statement calls functions that another user has put in the search path", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		execute(t, db, hijacks)
		store := newStore(t, db, postgres.Config{Retain: time.Hour})
		require.NoError(t, store.Ensure(t.Context()))
		everything(t, store)
		maintained(t, store)
		many := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)
		for i := range 300 {
			many.Topics.Include = append(many.Topics.Include, fmt.Sprint("topic", i))
		}
		require.Empty(t, claimed(t, store, many))
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
		told := &traced{}
		pool := connectAs(t, database, func(c *pgxpool.Config) { c.ConnConfig.Tracer = told })
		log := journal.New()
		upgrading, err := postgres.New(pool, postgres.Config{}, log)
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
}

// maintained does the upkeep until nothing is left to do.
func maintained(t *testing.T, store *postgres.Store) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = store.Maintain(t.Context())
		require.NoError(t, err)
	}
}

// traced has the single statements of a pool.
type traced struct {
	mu    sync.Mutex
	timed []span
}

// span is a single statement.
type span struct {
	statement    string
	began, ended time.Time
}

func (*traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, span{}, span{statement: data.SQL, began: time.Now()})
}

func (q *traced) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	one, _ := ctx.Value(span{}).(span)
	one.ended = time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timed = append(q.timed, one)
}

// spans are the statements that contain the text and have ended.
func (q *traced) spans(text string) (found []span) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.timed {
		if strings.Contains(one.statement, text) {
			found = append(found, one)
		}
	}
	return found
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
