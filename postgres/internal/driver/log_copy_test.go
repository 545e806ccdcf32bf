package driver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// copying are two stores on one database, one of which always copies, and one never does.
type copying struct {
	db               *pgxpool.Pool
	copied, inserted opened
}

func openCopying(t *testing.T, change func(*pgxpool.Config)) copying {
	t.Helper()
	db := connect(t, postgrestest.Database(t), 8, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = tap{}
		if change != nil {
			change(c)
		}
	})
	open := func(schema string, copies bool) opened {
		d := driver.New(driver.PoolOf(db), driver.Config{Name: schema, Schema: schema})
		d.Copies(copies)
		o := opened{engine.New(d, engine.Config{FairTopics: []string{"fair.*"}}), d, db, schema}
		t.Cleanup(func() { require.NoError(t, o.Close()) })
		require.NoError(t, o.Ensure(t.Context()))
		for _, group := range []string{"first", "second"} {
			require.NoError(t, o.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
		}
		return o
	}
	return copying{db, open("copied", true), open("inserted", false)}
}

// logged are all columns of the log, but for what differs between two appends.
func (o opened) logged(t *testing.T) string {
	t.Helper()
	return valueOf[string](t, o.db, `SELECT coalesce(json_agg(row_to_json(r) ORDER BY r.nth)::text, '')
		FROM (SELECT row_number() OVER (ORDER BY pos) AS nth, xid = max(xid) OVER () AS same, created_at = max(created_at) OVER () AS made,
		event, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata,
		length(payload), md5(payload) FROM `+o.schema+`.log) AS r`)
}

func (o opened) forget(t *testing.T) {
	t.Helper()
	execute(t, o.db, "TRUNCATE "+o.schema+".log_0, "+o.schema+".log_1, "+o.schema+".log_2")
	execute(t, o.db, "DELETE FROM "+o.schema+".entries WHERE kind = 'dedup'")
}

// another is a store of another process.
func (o opened) another(t *testing.T) *engine.Engine {
	t.Helper()
	e := engine.New(driver.New(driver.PoolOf(o.db), driver.Config{Name: o.schema, Schema: o.schema}), engine.Config{})
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// oddRecords are records with each kind of value. Their sizes lie below, at and above the size of the buffer in which pgx sends rows.
func oddRecords() []*outmill.Record {
	odd := "a\"'\\\t\r\n,{}\\N é😀"
	records := []*outmill.Record{
		{Topic: "orders"}, {Topic: "orders", Payload: []byte{}}, {Topic: "orders", Payload: []byte{0}, Metadata: map[string]string{}},
		{
			Topic: "orders", Key: odd, MessageID: odd, TenantID: odd, CorrelationID: odd, CausationID: odd, DedupKey: odd,
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b", Payload: []byte{0, '\\', '"', 255, '\n'},
			Metadata: map[string]string{"name": odd, "": "<&>"},
		},
		{Topic: "orders", Key: "NULL", MessageID: `\N`, TenantID: "null", DedupKey: "twice"}, {Topic: "orders", DedupKey: "twice"},
		{Topic: "orders", MessageID: "0af76519-16cd-43dd-8448-eb211c80319c"},
		{Topic: "orders", MessageID: "0af7651916cd43dd8448eb211c80319cpqrs"},
		{Topic: "fair.orders", TenantID: "tenant"}, {Topic: "é", Payload: make([]byte, 1<<20)}, {Topic: "orders", Key: "behind it"},
	}
	for size := 64<<10 - 1200; size < 64<<10+200; size += 97 {
		records = append(records, &outmill.Record{Topic: "orders", Payload: []byte(strings.Repeat("x", size))})
	}
	return records
}

// copies is how many COPYs were sent.
func (t *trips) copies() (n int) {
	for _, values := range t.list() {
		if values == nil {
			n++
		}
	}
	return n
}

// ofAnotherDriver is a transaction that has no connection of pgx.
const ofAnotherDriver = "a *sql.Tx of another driver"

// appendsIn are the transactions in which an append may be.
func appendsIn(t *testing.T, db *pgxpool.Pool) map[string]func(ctx context.Context, o opened, records ...*outmill.Record) error {
	t.Helper()
	inSQL := func(db *sql.DB) func(ctx context.Context, o opened, records ...*outmill.Record) error {
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return func(ctx context.Context, o opened, records ...*outmill.Record) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return errors.Join(o.Append(o.WithTx(ctx, tx), records...), tx.Commit())
		}
	}
	other, err := sql.Open("postgres", db.Config().ConnConfig.ConnString())
	require.NoError(t, err)
	return map[string]func(ctx context.Context, o opened, records ...*outmill.Record) error{
		"its own": func(ctx context.Context, o opened, records ...*outmill.Record) error {
			return o.Append(ctx, records...)
		},
		"Transact": func(ctx context.Context, o opened, records ...*outmill.Record) error {
			return o.Transact(ctx, func(ctx context.Context) error { return o.Append(ctx, records...) })
		},
		"a pgx.Tx": func(ctx context.Context, o opened, records ...*outmill.Record) error {
			return pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error { return o.Append(o.WithTx(ctx, tx), records...) })
		},
		"a savepoint": func(ctx context.Context, o opened, records ...*outmill.Record) error {
			return pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
				return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return o.Append(o.WithTx(ctx, tx), records...) })
			})
		},
		"a *sql.Tx":     inSQL(stdlib.OpenDB(*db.Config().ConnConfig)),
		ofAnotherDriver: inSQL(other),
	}
}

// An append that copies writes the same rows as one that inserts, in each transaction and mode.
func TestLogCopy_WritesTheSameRows(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openCopying(t, inMode(mode))
			for in, appends := range appendsIn(t, s.db) {
				ctx, seen := tapped(t.Context())
				records := oddRecords()
				require.NoError(t, appends(ctx, s.copied, records...), in)
				want := 1
				if in == ofAnotherDriver {
					want = 0
				}
				require.Equal(t, want, seen.copies(), in)
				ctx, seen = tapped(t.Context())
				require.NoError(t, appends(ctx, s.inserted, oddRecords()...), in)
				require.Zero(t, seen.copies(), in)
				require.Equal(t, s.inserted.logged(t), s.copied.logged(t), in)
				if in == "its own" {
					require.True(t, records[5].Duplicate)
					got, err := s.copied.Get(t.Context(), records[0].ID)
					require.NoError(t, err)
					require.Equal(t, records[0].CreatedAt, got.CreatedAt, "the time is that of the database")
					require.Equal(t, records[0].ID.String(), got.MessageID)
				}
				s.copied.forget(t)
				s.inserted.forget(t)
			}
		})
	}
}

// Fifty rows or several large ones are copied, which takes three round trips.
func TestLogCopy_OfLargeAppends(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	require.NoError(t, s.Append(t.Context(), made("orders", "a", 1)...))
	for name, c := range map[string]struct {
		records       []*outmill.Record
		trips, copies int
	}{
		"some rows":         {made("orders", "a", 49), 1, 0},
		"many rows":         {made("orders", "a", 50), 3, 1},
		"a large row":       {[]*outmill.Record{{Topic: "orders", Payload: make([]byte, 1<<20)}}, 1, 0},
		"several large":     {[]*outmill.Record{{Topic: "orders", Payload: make([]byte, 1<<17)}, {Topic: "orders"}}, 3, 1},
		"rows of no log":    {[]*outmill.Record{{Topic: "orders", Payload: make([]byte, 1<<17)}, {Topic: "orders", Delay: time.Hour}}, 1, 0},
		"rows of given ids": {append(made("orders", "a", 99), &outmill.Record{Topic: "orders", ID: outmill.NewWorkItemID()}), 0, 0},
	} {
		ctx, seen := tapped(t.Context())
		require.NoError(t, s.Append(ctx, c.records...), name)
		require.Equal(t, c.copies, seen.copies(), name)
		if c.trips > 0 {
			require.Len(t, seen.list(), c.trips, name)
		}
	}
}

// A caller's transaction that does nothing but append sends the statements around the COPY, and no others.
func TestLogCopy_TripsOfACaller(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	require.NoError(t, s.Append(t.Context(), made("orders", "a", 1)...))
	for want, of := range map[int]func(key string) []*outmill.Record{
		3: func(string) []*outmill.Record { return made("orders", "a", 50) },
		5: func(key string) []*outmill.Record {
			return append(made("orders", "a", 49), &outmill.Record{Topic: "orders", DedupKey: key})
		},
	} {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
			// The first one makes the statements known to the connection.
			if err := s.Append(s.driver.WithTx(t.Context(), tx), of("first")...); err != nil {
				return err
			}
			ctx, seen := tapped(t.Context())
			err := s.Append(s.driver.WithTx(ctx, tx), of("second")...)
			require.Len(t, seen.list(), want)
			require.Equal(t, 1, seen.copies())
			return err
		}))
	}
}

// A group registers between what the append knows and its COPY.
func TestLogCopy_DuringARegistration(t *testing.T) {
	t.Parallel()
	for in, trips := range map[string]int{"its own": 1, "a pgx.Tx": 3} {
		s := openCopying(t, nil)
		require.NoError(t, s.copied.Append(t.Context(), made("orders", "a", 1)...))
		s.copied.forget(t)
		records := made("orders", "a", 5)
		ctx, seen := tapped(t.Context())
		ctx = context.WithValue(ctx, tripKey{}, func() {
			if len(seen.list()) == trips { // the next one is the COPY
				require.NoError(t, s.copied.another(t).RegisterGroup(t.Context(), outmill.Registration{Group: "a third"}))
			}
		})
		require.NoError(t, appendsIn(t, s.db)[in](ctx, s.copied, records...), in)
		for _, group := range []string{"first", "second", "a third"} {
			got, err := s.copied.Claim(t.Context(), outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: group, Limit: 10, Lease: time.Minute, Order: outmill.OrderKey,
			})
			require.NoError(t, err)
			require.Len(t, got, len(records), "%s: %s", in, group)
			for i, r := range records {
				switch group {
				case r.Group:
					require.Equal(t, r.ID, got[i].ID, in)
				case "second":
					require.Equal(t, outmill.CopyID(r.ID, group), got[i].ID, in)
				}
			}
		}
	}
}

// refuse has the log of the schema refuse a key.
func (o opened) refuse(t *testing.T, key string) {
	t.Helper()
	for n := range 3 {
		execute(t, o.db, fmt.Sprintf("ALTER TABLE %s.log_%d ADD CHECK (key <> '%s')", o.schema, n, key))
	}
}

func TestLogCopy_BehindPgBouncer(t *testing.T) {
	t.Parallel()
	direct := postgrestest.Database(t)
	through := postgrestest.PgBouncer(t, direct, "default_pool_size=3")
	s := storeOn(t, connect(t, direct, 2, nil))
	require.NoError(t, s.Ensure(t.Context()))
	behind := storeOn(t, connect(t, through, 8, inMode(pgx.QueryExecModeExec)))
	for range 10 {
		require.NoError(t, behind.Append(t.Context(), made("orders", "a", 500)...))
	}
	require.Equal(t, 5000, valueOf[int](t, s.db, "SELECT count(*) FROM outmill.log"))
}

func TestLogCopy_ThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	s := openCopying(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s.copied.refuse(t, "refused")
	list := append(append(made("orders", "a", 2000), made("orders", "refused", 1)...), made("orders", "b", 9000)...)
	requireRefused := func(err error) {
		var e *pgconn.PgError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "23514", e.Code)
	}
	t.Run("its own transaction writes nothing", func(t *testing.T) {
		requireRefused(s.copied.Append(t.Context(), list...))
		require.Empty(t, s.copied.logged(t))
	})
	t.Run("a caller's transaction goes on", func(t *testing.T) {
		tx, err := s.db.Begin(t.Context())
		require.NoError(t, err)
		ctx := s.copied.WithTx(t.Context(), tx)
		require.NoError(t, s.copied.Append(ctx, made("orders", "before", 1)...))
		requireRefused(s.copied.Append(ctx, list...))
		require.NoError(t, s.copied.Append(ctx, made("orders", "behind", 1)...))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, "before,behind", valueOf[string](t, s.db, "SELECT string_agg(key, ',' ORDER BY pos) FROM copied.log"))
		s.copied.forget(t)
	})
	t.Run("a caller's *sql.Tx goes on", func(t *testing.T) {
		db := stdlib.OpenDB(*s.db.Config().ConnConfig)
		defer func() { require.NoError(t, db.Close()) }()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx := s.copied.WithTx(t.Context(), tx)
		requireRefused(s.copied.Append(ctx, list...))
		require.NoError(t, s.copied.Append(ctx, made("orders", "behind", 1)...))
		require.NoError(t, tx.Commit())
		require.Equal(t, "behind", valueOf[string](t, s.db, "SELECT string_agg(key, ',' ORDER BY pos) FROM copied.log"))
	})
}

// blocked has COPYs wait, and returns the process of one that does and what lets them go on.
func (s copying) blocked(t *testing.T) (waits func() int, release func()) {
	t.Helper()
	tx, err := s.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE copied.log_0, copied.log_1, copied.log_2 IN SHARE MODE")
	require.NoError(t, err)
	waits = func() (pid int) {
		require.Eventually(t, func() bool {
			pid = valueOf[int](t, s.db, `SELECT coalesce(max(a.pid), 0)
				FROM pg_stat_activity AS a JOIN pg_locks AS l ON l.pid = a.pid AND NOT l.granted
				WHERE a.query LIKE 'COPY %' AND a.datname = current_database()`)
			return pid != 0
		}, 10*time.Second, time.Millisecond, "no COPY waits")
		return pid
	}
	return waits, func() { require.NoError(t, tx.Rollback(t.Context())) }
}

func TestLogCopy_CutInTheMiddle(t *testing.T) {
	t.Parallel()
	list := func() []*outmill.Record {
		records := made("orders", "a", 5000)
		for _, r := range records {
			r.Payload = make([]byte, 2000) // more than the buffers between this process and the server hold
		}
		return records
	}
	t.Run("a call whose context ends writes nothing", func(t *testing.T) {
		t.Parallel()
		s := openCopying(t, nil)
		for in, appends := range appendsIn(t, s.db) {
			if in == ofAnotherDriver {
				continue
			}
			require.NoError(t, s.copied.Append(t.Context(), made("orders", "known", 1)...))
			s.copied.forget(t)
			waits, release := s.blocked(t)
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- appends(ctx, s.copied, list()...) }()
			waits()
			end()
			require.ErrorIs(t, <-ended, context.Canceled, in)
			release()
			require.NoError(t, s.copied.Append(t.Context(), made("orders", "next", 1)...), in)
			require.Equal(t, "next", valueOf[string](t, s.db, "SELECT string_agg(key, ',') FROM copied.log"), in)
		}
	})
	t.Run("a call whose connection ends begins again", func(t *testing.T) {
		t.Parallel()
		s := openCopying(t, nil)
		require.NoError(t, s.copied.Append(t.Context(), made("orders", "known", 1)...))
		waits, release := s.blocked(t)
		ended := make(chan error, 1)
		go func() { ended <- s.copied.Append(t.Context(), list()...) }()
		execute(t, s.db, "SELECT pg_terminate_backend($1)", waits())
		release()
		require.NoError(t, <-ended)
		require.Equal(t, 5001, valueOf[int](t, s.db, "SELECT count(*) FROM copied.log"))
	})
}

// The server does not wait for ever for the rows of a process that has stopped.
func TestLogCopy_HasALimit(t *testing.T) {
	t.Parallel()
	for session, want := range map[string]string{"0": "10min", "1min": "1min"} {
		s := openCopying(t, inSession("statement_timeout", session))
		execute(t, s.db, "CREATE TABLE seen (timeout text)")
		execute(t, s.db, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS
			$$BEGIN INSERT INTO seen VALUES (current_setting('statement_timeout')); RETURN NULL; END$$`)
		for n := range 3 {
			execute(t, s.db, fmt.Sprintf("CREATE TRIGGER see BEFORE INSERT ON copied.log_%d EXECUTE FUNCTION see()", n))
		}
		require.NoError(t, s.copied.Append(t.Context(), made("orders", "a", 1)...))
		require.NoError(t, appendsIn(t, s.db)["a pgx.Tx"](t.Context(), s.copied, made("orders", "a", 1)...))
		require.Equal(t, want+", "+session, valueOf[string](t, s.db, "SELECT string_agg(timeout, ', ') FROM seen"), "a caller keeps its own")
	}
}
