package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// executor sends a statement of an Appender.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func newAppender(t *testing.T, config postgres.Config) *postgres.Appender {
	t.Helper()
	appender, err := postgres.NewAppender(config)
	require.NoError(t, err)
	return appender
}

// send appends by a statement, like a program without a Store.
func send(t *testing.T, appender *postgres.Appender, to executor, records ...*outmill.Record) error {
	t.Helper()
	query, args, err := appender.Statement(records...)
	require.NoError(t, err)
	_, err = to.ExecContext(t.Context(), query, args...)
	return err
}

func standard(t *testing.T, db *pgxpool.Pool) *sql.DB {
	t.Helper()
	std := stdlib.OpenDBFromPool(db)
	t.Cleanup(func() { require.NoError(t, std.Close()) })
	return std
}

func beginStandard(t *testing.T, db *pgxpool.Pool, options *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := standard(t, db).BeginTx(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// varied returns records that use every field which a statement takes.
func varied() map[string][]*outmill.Record {
	full := odd("full")
	full.CorrelationID, full.CausationID, full.TenantID = "correlation", "cause 'é'", "tenant"
	full.TraceParent, full.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b,c=d"
	return map[string][]*outmill.Record{
		"plain":      {one("m1"), {Topic: "orders", MessageID: "m2", Payload: []byte{}, Key: "k"}, full},
		"delayed":    {{Topic: "orders", MessageID: "later", Delay: time.Hour}, one("with it")},
		"due":        {{Topic: "orders", MessageID: "at", DueAt: time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.UTC)}},
		"due before": {{Topic: "orders", MessageID: "past", DueAt: time.Date(2001, 1, 2, 3, 4, 5, 678901000, time.UTC)}},
		"expiring": {{Topic: "orders", MessageID: "soon", TimeToLive: time.Hour},
			{Topic: "orders", MessageID: "then", ExpiresAt: time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)}},
		"several topics":             {one("m1"), {Topic: "others", MessageID: "m2"}, {Topic: "audit.x", MessageID: "m3"}, one("m4")},
		"letters that are no blanks": {{Topic: "vox v", MessageID: "m1", Key: "vav"}},
		"unrouted":                   {{Topic: "nobody", MessageID: "m1"}},
		"partly unrouted":            {one("m1"), {Topic: "nobody", MessageID: "m2"}},
		"many":                       made("orders", "many", 120),
		"deduplicated": {{Topic: "orders", MessageID: "a", DedupKey: "k"}, {Topic: "orders", MessageID: "b", DedupKey: "k"},
			{Topic: "others", MessageID: "c", DedupKey: "k"}, one("none")},
		"nothing": {},
	}
}

// withoutIDs returns the record without the fields that differ between two appends of the same
// record.
func withoutIDs(r *outmill.Record) outmill.Record {
	c := *r
	c.ID = outmill.WorkItemID{}
	for _, at := range []*time.Time{&c.DueAt, &c.NextAttemptAt, &c.ExpiresAt} {
		if !at.IsZero() && at.Sub(c.CreatedAt).Abs() < 3*time.Hour {
			*at = time.Unix(0, 0).Add(at.Sub(c.CreatedAt))
		}
	}
	c.CreatedAt = time.Time{}
	return c
}

func comparables(t *testing.T, store *postgres.Store) []outmill.Record {
	t.Helper()
	found, err := store.List(t.Context(), outmill.ListQuery{Limit: 10_000})
	require.NoError(t, err)
	list := make([]outmill.Record, len(found))
	for i, r := range found {
		require.Equal(t, uuid.Version(7), uuid.UUID(r.ID).Version())
		require.WithinDuration(t, time.Now(), time.Unix(uuid.UUID(r.ID).Time().UnixTime()), time.Hour)
		list[i] = withoutIDs(r)
	}
	return list
}

func TestStore_Appender(t *testing.T) {
	t.Parallel()

	t.Run("a statement appends the same records as the store", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		appended, sent := newStore(t, db, postgres.Config{Schema: "appended"}), newStore(t, db, postgres.Config{Schema: "sent"})
		groups := map[string]outmill.Topics{
			"forwarder": {Exclude: []string{"nobody"}}, "": {Include: []string{"orders"}},
			"é": {Include: []string{"*s", `a\*`}, Exclude: []string{"oth*"}}, "zz": {Include: []string{"audit.*"}},
		}
		begin := func() {
			for _, store := range []*postgres.Store{appended, sent} {
				for group, topics := range groups {
					require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: topics}))
				}
			}
		}
		for _, store := range []*postgres.Store{appended, sent} {
			require.NoError(t, store.Ensure(t.Context()))
		}
		begin()
		appender := newAppender(t, postgres.Config{Schema: "sent"})
		std := standard(t, db)
		for name := range varied() {
			require.NoError(t, appended.Append(t.Context(), varied()[name]...), name)
			require.NoError(t, send(t, appender, std, varied()[name]...), name)
			require.ElementsMatch(t, comparables(t, appended), comparables(t, sent), name)
			for group := range groups {
				req := claimOf(outmill.NewOwnerToken(), 1000, outmill.OrderTopic, "orders")
				req.Group = group
				require.Equal(t, namesOf(claimed(t, appended, req)), namesOf(claimed(t, sent, req)), "the order of %s", name)
			}
			for _, schema := range []string{"appended", "sent"} {
				wipe(t, db, schema)
			}
			begin()
		}
	})

	t.Run("a statement is part of the transaction that sends it", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		appender := newAppender(t, postgres.Config{})
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx := beginStandard(t, store.Pool(), &sql.TxOptions{Isolation: level})
			require.NoError(t, send(t, appender, tx, one("rolled back"), &outmill.Record{Topic: "orders", DedupKey: "rolled back"}))
			require.Empty(t, listed(t, store))
			require.NoError(t, tx.Rollback())
			require.Empty(t, listed(t, store), level)
		}
		tx := beginStandard(t, store.Pool(), nil)
		require.NoError(t, send(t, appender, tx, one("committed"),
			&outmill.Record{Topic: "orders", MessageID: "free again", DedupKey: "rolled back"}))
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"committed", "free again"}, listed(t, store))

		err := store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			query, args, err := appender.Statement(one("of pgx"))
			require.NoError(t, err)
			var appended int
			require.NoError(t, tx.QueryRow(ctx, query, args...).Scan(&appended))
			require.Equal(t, 1, appended)
			return nil
		})
		require.NoError(t, err)
		require.Contains(t, listed(t, store), "of pgx")
	})

	t.Run("a statement skips records whose dedup key was seen before", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		appender := newAppender(t, postgres.Config{DedupWindow: time.Hour})
		std := standard(t, store.Pool())
		keyed := func(name string) *outmill.Record {
			return &outmill.Record{Topic: "orders", MessageID: name, DedupKey: "key"}
		}
		require.NoError(t, store.Append(t.Context(), keyed("first")))
		tx := beginStandard(t, store.Pool(), nil)
		query, args, err := appender.Statement(keyed("second"), one("beside"), keyed("third"))
		require.NoError(t, err)
		var appended int
		require.NoError(t, tx.QueryRowContext(t.Context(), query, args...).Scan(&appended))
		require.Equal(t, 1, appended, "it says how many were")
		require.NoError(t, send(t, appender, tx, one("later")), "the transaction goes on")
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"beside", "first", "later"}, listed(t, store))
		passTime(t, store.Pool(), "outmill", 25*time.Hour)
		require.NoError(t, send(t, appender, std, keyed("after the window"), keyed("not twice")))
		require.Equal(t, []string{"after the window", "beside", "first", "later"}, listed(t, store))
		require.InDelta(t, time.Hour.Seconds(),
			valueOf[float64](t, store.Pool(), "SELECT (at - outmill.now())::float8 / 1000000 FROM outmill.entries WHERE kind = 'dedup'"), 60)
		again := keyed("by the store")
		require.NoError(t, store.Append(t.Context(), again))
		require.True(t, again.Duplicate, "both know each other's keys")
	})

	t.Run("a statement ignores the callers search path", func(t *testing.T) {
		t.Parallel()
		store := registered(t)
		db := store.Pool()
		execute(t, db, `CREATE SCHEMA evil`)
		for _, statement := range []string{
			`CREATE FUNCTION evil.statement_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$`,
			`CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$`,
			`CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$`,
			`CREATE TABLE evil.entries (kind text)`,
			`CREATE TABLE evil.records (id text)`,
		} {
			execute(t, db, statement)
		}
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "second"}))
		tx := beginStandard(t, db, nil)
		for _, setting := range []string{"SET LOCAL search_path = evil, pg_catalog, public", "SET LOCAL standard_conforming_strings = off",
			"SET LOCAL bytea_output = escape", "SET LOCAL DateStyle = 'SQL, DMY'", "SET LOCAL IntervalStyle = 'sql_standard'"} {
			_, err := tx.ExecContext(t.Context(), setting)
			require.NoError(t, err)
		}
		delayed := &outmill.Record{Topic: "orders", MessageID: "delayed", Delay: time.Hour, Payload: []byte{0, 1, 255}}
		require.NoError(t, send(t, newAppender(t, postgres.Config{}), tx, odd("now")))
		require.NoError(t, send(t, newAppender(t, postgres.Config{}), tx, delayed))
		var path string
		require.NoError(t, tx.QueryRowContext(t.Context(), "SHOW search_path").Scan(&path))
		require.Equal(t, "evil, pg_catalog, public", path, "it stays the caller's")
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"delayed", "delayed", "now", "now"}, listed(t, store))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.Len(t, found, 1)
		require.Equal(t, odd("now").Payload, found[0].Payload)
	})

	t.Run("a commit of a statement wakes readers in other processes", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		config := postgres.Config{Schema: `Or ders"x`, TablePrefix: "p_"}
		store := newStore(t, connect(t, url), config)
		require.NoError(t, store.Ensure(t.Context()))
		told := testenv.Hints(t.Context(), store)
		// The first notification comes when it begins to listen.
		<-told
		for range 2 {
			// A new appender notifies with its first statement.
			tx := beginStandard(t, connect(t, url), nil)
			require.NoError(t, send(t, newAppender(t, config), tx, one("woken")))
			require.NoError(t, tx.Commit())
			<-told
		}
	})

	t.Run("statements notify once in an interval", func(t *testing.T) {
		t.Parallel()
		for interval, want := range map[time.Duration][]bool{-1: {false, false, false}, 1: {true, true, true}, time.Hour: {true, false, false}} {
			appender := newAppender(t, postgres.Config{NotifyInterval: interval})
			var got []bool
			for range want {
				_, args, err := appender.Statement(one("m"))
				require.NoError(t, err)
				got = append(got, args[len(args)-1].(bool))
			}
			require.Equal(t, want, got, interval)
		}
	})

	t.Run("a record that a statement cannot append is refused", func(t *testing.T) {
		t.Parallel()
		appender := newAppender(t, postgres.Config{MaxPayload: 10})
		for field, record := range map[string]*outmill.Record{
			"topic":           {},
			"record":          nil,
			"payload":         {Topic: "orders", Payload: make([]byte, 11)},
			"key":             {Topic: "orders", Key: strings.Repeat("k", 256)},
			`metadata "name"`: {Topic: "orders", Metadata: map[string]string{"name": "a\x00b"}},
			"joins":           {Topic: "orders", Joins: []outmill.JoinID{outmill.NewJoinID()}},
			"id":              {Topic: "orders", ID: outmill.WorkItemID{1}},
		} {
			_, _, err := appender.Statement(one("fine"), record)
			var invalid *outmill.InvalidRecordError
			require.ErrorAs(t, err, &invalid, field)
			require.Equal(t, field, invalid.Field)
		}
		_, _, err := appender.Statement(&outmill.Record{Topic: "orders", WaitsFor: outmill.NewJoinID()})
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.ErrorContains(t, err, "package publisher")
		_, err = postgres.NewAppender(postgres.Config{TablePrefix: "1"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("the arguments of a statement print neither payload nor metadata", func(t *testing.T) {
		t.Parallel()
		record := &outmill.Record{Topic: "orders", MessageID: "m1", Payload: []byte("S3CRET"), Metadata: map[string]string{"card": "S3CRET"}}
		_, args, err := newAppender(t, postgres.Config{}).Statement(record)
		require.NoError(t, err)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			printed := fmt.Sprintf(verb, args)
			require.NotContains(t, printed, "S3CRET")
			require.NotContains(t, printed, "533343524554", "in hexadecimal")
			require.Contains(t, printed, "m1")
		}
	})

	// A role that has no other right sends the statements.
	t.Run("a role that appends by statements needs the right to execute one function", func(t *testing.T) {
		t.Parallel()
		database, admin, super := ruled(t)
		require.NoError(t, super.RegisterGroup(t.Context(),
			outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{"orders"}}}))
		role, roleURL := newRole(t, admin, database)
		std := standard(t, connect(t, roleURL))
		appender := newAppender(t, postgres.Config{})
		use := func() error {
			return errors.Join(
				send(t, appender, std, one("now"), &outmill.Record{Topic: "orders", DedupKey: outmill.NewWorkItemID().String()}),
				send(t, appender, std, &outmill.Record{Topic: "orders", Delay: time.Hour}, &outmill.Record{Topic: "nobody"}),
			)
		}
		execute(t, admin, "GRANT USAGE ON SCHEMA outmill TO "+role)
		require.ErrorContains(t, use(), "permission denied for function append", "it is not everybody's")
		execute(t, admin, "GRANT EXECUTE ON FUNCTION outmill.append TO "+role)
		require.NoError(t, use())
		require.Len(t, listed(t, super), 4)
		_, err := std.ExecContext(t.Context(), "SELECT 1 FROM outmill.records")
		require.ErrorContains(t, err, "permission denied")
	})

	t.Run("the schema selects topics as the programs do", func(t *testing.T) {
		t.Parallel()
		store := ensured(t, postgres.Config{})
		db := store.Pool()
		texts := rapid.StringOf(rapid.SampledFrom([]rune(`ab**\\%_.é[]()|+?^$` + "\n'")))
		rapid.Check(t, func(r *rapid.T) {
			patterns := rapid.SliceOfN(texts.Filter(func(s string) bool { return s != "" }), 1, 20).Draw(r, "patterns")
			topic := texts.Draw(r, "topic")
			if rapid.Bool().Draw(r, "is a name") {
				topic = patterns[0]
			}
			matched, err := pgxCollect[bool](t.Context(), db, `SELECT outmill.topic_matches(p, $2) FROM unnest($1::text[]) WITH ORDINALITY AS t (p,
				n) ORDER BY n`, patterns, topic)
			require.NoError(r, err)
			for i, pattern := range patterns {
				require.Equal(r, outmill.Topics{Include: []string{pattern}}.Match(topic), matched[i], "%q and %q", pattern, topic)
			}
		})
	})
}

func pgxCollect[T any](ctx context.Context, db *pgxpool.Pool, query string, args ...any) ([]T, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}
