package driver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/storekit"
)

// program runs one of the server's own programs. It may run in a goroutine of the test.
func program(ctx context.Context, name string, args ...string) error {
	bin, err := postgresengine.Binaries(ctx)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, name), args...).CombinedOutput() //nolint:gosec // programs of the server
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func needsPrograms(t *testing.T) {
	t.Helper()
	bin, err := postgresengine.Binaries(t.Context())
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(bin, "pg_dump")); err != nil {
		t.Skip("skipped: this PostgreSQL has no pg_dump")
	}
}

// dumping starts a pg_dump of the database; the error comes with its end.
func dumping(t *testing.T, url string) (file string, ended <-chan error) {
	t.Helper()
	file, done := filepath.Join(t.TempDir(), "dump"), make(chan error, 1)
	ctx := t.Context()
	go func() { done <- program(ctx, "pg_dump", "--format=custom", "--no-owner", "--file", file, url) }()
	return file, done
}

// dumped is a store in a database with tables of a service. The first one is locked before those of the store, because pg_dump locks
// older tables first.
func dumped(t *testing.T, config segments.Config) (database string, s opened) {
	t.Helper()
	needsPrograms(t)
	database = postgrestest.Database(t)
	db := connect(t, database, 12, nil)
	execute(t, db, `CREATE SCHEMA a CREATE TABLE a (id integer)
		CREATE TABLE orders (name text PRIMARY KEY) CREATE TABLE handled (name text PRIMARY KEY)`)
	config.Full, config.Small, config.Age, config.Every, config.Tidy = 1, 1, 1, 1, 1
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill", Upkeep: config})
	s = opened{engine.New(d, engine.Config{}), d, db, "outmill"}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Ensure(t.Context()))
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	return database, s
}

// restoredTo restores the dump, and returns the messages that are still to be delivered there, each once.
func restoredTo(t *testing.T, file string) (there opened, names []string) {
	t.Helper()
	target := postgrestest.Database(t)
	require.NoError(t, program(t.Context(), "pg_restore", "--no-owner", "--exit-on-error", "--dbname", target, file))
	there = storeOn(t, connect(t, target, 4, nil))
	execute(t, there.db, "UPDATE outmill.batches SET lease_until = outmill.now() - 1 WHERE size > 0")
	execute(t, there.db, "UPDATE outmill.records SET wake_at = outmill.now() WHERE wake_at <> 0")
	return there, deliveredBy(t, there)
}

// deliveredBy returns what the store delivers, in its order, and requires that nothing comes twice.
func deliveredBy(t *testing.T, s opened) (names []string) {
	t.Helper()
	got := map[string]bool{}
	for {
		found, err := s.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 7, Lease: time.Hour, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		for _, r := range found {
			require.False(t, got[r.MessageID], "%s comes twice", r.MessageID)
			got[r.MessageID] = true
			names = append(names, r.MessageID)
		}
		if len(found) == 0 {
			return names
		}
		require.NoError(t, s.Ack(t.Context(), "w", leasesOf(found)))
	}
}

const sqlWaits = `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'a.a'::regclass`

func TestLogDump_ThatWaitsForALock(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(s opened, leased []*outmill.Record) error{
		"has the records that move out of the log while it waits": func(s opened, leased []*outmill.Record) error {
			var again []outmill.Settlement
			for _, r := range leased {
				again = append(again, outmill.Settlement{Lease: r.Lease(), Delay: time.Minute, Err: "again"})
			}
			return s.Abandon(context.Background(), again)
		},
		"has the records that are acked while it waits": func(s opened, leased []*outmill.Record) error {
			return s.Ack(context.Background(), "w", leasesOf(leased))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database, s := dumped(t, segments.Config{DumpWithin: time.Microsecond})
			require.NoError(t, s.Append(t.Context(), made("orders", "m", 10)...))
			leased, err := s.Claim(t.Context(), outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 10, Lease: time.Hour, Order: outmill.OrderKey,
			})
			require.NoError(t, err)
			require.Len(t, leased, 10)
			altering, err := s.db.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = altering.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = altering.Exec(t.Context(), "ALTER TABLE a.a ADD COLUMN b integer")
			require.NoError(t, err)
			file, ended := dumping(t, database)
			require.Eventually(t, func() bool { return valueOf[int](t, s.db, sqlWaits) == 1 }, time.Minute, time.Millisecond)
			require.NoError(t, leave(s, leased))
			for range 20 {
				_, err := s.driver.Tend(t.Context())
				require.NoError(t, err)
			}
			require.Equal(t, 10, valueOf[int](t, s.db, "SELECT count(*) FROM outmill.log"), "the segment is kept for the dump")
			require.NoError(t, altering.Rollback(t.Context()))
			require.NoError(t, <-ended)
			require.Eventually(t, func() bool {
				_, err := s.driver.Tend(t.Context())
				return err == nil && valueOf[int](t, s.db, "SELECT count(*) FROM outmill.log") == 0
			}, time.Minute, time.Millisecond, "behind the dump the segment is truncated")
			_, names := restoredTo(t, file)
			require.ElementsMatch(t, namesOf(leased), names)
		})
	}
}

// A copy of a server's disk has its identity, and gives the same transaction numbers once more.
func TestLogDump_InACloneOfItsServer(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "servers of which one is a copy of the other's disk")
	needsPrograms(t)
	home, away := postgrestest.Own(t), postgrestest.Own(t)
	clone(t, home, away)
	database := postgrestest.DatabaseOn(t, home.URL)
	s := storeOn(t, connect(t, database, 4, nil))
	require.NoError(t, s.Ensure(t.Context()))
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	for range 3000 {
		execute(t, s.db, "SELECT pg_current_xact_id()")
	}
	appended := made("orders", "m", 20)
	require.NoError(t, s.Append(t.Context(), appended...))
	got, err := s.Claim(t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 5, Lease: time.Hour, Order: outmill.OrderKey,
	})
	require.NoError(t, err)
	require.NoError(t, s.Ack(t.Context(), "w", leasesOf(got)))
	file, ended := dumping(t, database)
	require.NoError(t, <-ended)

	target := postgrestest.DatabaseOn(t, away.URL)
	require.NoError(t, program(t.Context(), "pg_restore", "--no-owner", "--exit-on-error", "--dbname", target, file))
	there := storeOn(t, connect(t, target, 4, nil))
	later := made("orders", "new", 1)
	require.NoError(t, there.Append(t.Context(), later...))
	require.Equal(t, namesOf(append(appended[5:], later...)), deliveredBy(t, there))
}

// clone copies the disk of a server to another one.
func clone(t *testing.T, from, to *postgresengine.Engine) {
	t.Helper()
	require.NoError(t, from.Stop(t.Context(), postgresengine.Fast))
	require.NoError(t, to.Stop(t.Context(), postgresengine.Fast))
	require.NoError(t, os.RemoveAll(filepath.Join(to.Dir, "data")))
	out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(from.Dir, "data"), filepath.Join(to.Dir, "data")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, from.Start(t.Context()))
	require.NoError(t, to.Start(t.Context()))
}

// In a dump each order is either handled or has its message, because the handler notes the order before the ack.
func TestLogDump_UnderLoad(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "dumps under load")
	database, s := dumped(t, segments.Config{})
	segmentsNow := func() string {
		return valueOf[string](t, s.db, `SELECT string_agg(pg_relation_filenode(c.oid)::text, ' ' ORDER BY c.relname)
			FROM pg_class AS c WHERE c.relname ~ '^log_[012]$'`)
	}
	before := segmentsNow()
	l := &dumpLoad{opened: s}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	working, inWork := errgroup.WithContext(ctx)
	for i := range 2 {
		working.Go(func() error { return l.publish(inWork, i) })
	}
	working.Go(func() error { return l.handle(inWork) })
	working.Go(func() error { return l.tend(inWork) })
	working.Go(func() error { return l.alter(inWork) })
	var files []string
	for range testenv.Steps(2, 20) {
		file, ended := dumping(t, database)
		require.NoError(t, <-ended)
		files = append(files, file)
	}
	require.Eventually(t, func() bool { return segmentsNow() != before }, 2*time.Minute, time.Millisecond, "no segment was truncated")
	stop()
	if err := working.Wait(); !errors.Is(err, context.Canceled) {
		require.NoError(t, err)
	}
	for i, file := range files {
		there, names := restoredTo(t, file)
		lost := valueOf[[]string](t, there.db, `SELECT coalesce(array_agg(name), '{}') FROM a.orders
			WHERE name NOT IN (SELECT name FROM a.handled) AND name <> ALL ($1::text[])`, names)
		require.Empty(t, lost, "of dump %d", i)
	}
	t.Logf("%d orders", l.published.Load())
}

func namesOf(records []*outmill.Record) []string {
	names := []string{}
	for _, r := range records {
		names = append(names, r.MessageID)
	}
	return names
}

// dumpLoad writes orders, each with its message, and handles them.
type dumpLoad struct {
	opened
	published, handled atomic.Int64
}

// behind is the most messages that wait, so that segments are read soon.
const behind = 40

func (l *dumpLoad) publish(ctx context.Context, writer int) error {
	for n := 0; ctx.Err() == nil; n++ {
		if l.published.Load()-l.handled.Load() > behind {
			_ = storekit.Pause(ctx, time.Millisecond)
			continue
		}
		name := fmt.Sprintf("%d-%d", writer, n)
		err := pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO a.orders VALUES ($1)`, name); err != nil {
				return err
			}
			return l.Append(l.WithTx(ctx, tx), &outmill.Record{Topic: "orders", Key: fmt.Sprint("key", n%5), MessageID: name})
		})
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		l.published.Add(1)
	}
	return ctx.Err()
}

// handle retries one in five messages at once, which moves them from the log to the records.
func (l *dumpLoad) handle(ctx context.Context) error {
	owner := outmill.NewOwnerToken()
	for ctx.Err() == nil {
		found, err := l.Claim(ctx, outmill.ClaimRequest{Owner: owner, Group: "readers", Limit: 20, Lease: time.Minute, Order: outmill.OrderKey})
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		var done []*outmill.Record
		var again []outmill.Settlement
		for _, r := range found {
			if r.Attempts == 0 && rand.IntN(5) == 0 {
				again = append(again, outmill.Settlement{Lease: r.Lease(), Err: "again"})
				continue
			}
			done = append(done, r)
		}
		if _, err := l.db.Exec(ctx, `INSERT INTO a.handled SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`, namesOf(done)); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err := errors.Join(l.Abandon(ctx, again), l.Ack(ctx, "w", leasesOf(done))); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		l.handled.Add(int64(len(done)))
	}
	return ctx.Err()
}

// tend has appends write to another segment as soon as one is empty, and truncates those that it can.
func (l *dumpLoad) tend(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := l.driver.Tend(ctx); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err := storekit.Pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// alter makes dumps wait between their snapshot and their locks.
func (l *dumpLoad) alter(ctx context.Context) error {
	for ctx.Err() == nil {
		err := pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `LOCK TABLE a.a`); err != nil {
				return err
			}
			return storekit.Pause(ctx, rand.N(300*time.Millisecond))
		})
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err := storekit.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}
