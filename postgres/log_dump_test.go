package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// dumping starts a pg_dump, and returns a function that waits for its end.
func dumping(t *testing.T, url string) (file string, end func()) {
	t.Helper()
	bin, err := postgresengine.Binaries(t.Context())
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "dump")
	done := async(func() ([]byte, error) {
		return exec.CommandContext(t.Context(), filepath.Join(bin, "pg_dump"), "--format=custom", "--no-owner", "--file", file,
			url).CombinedOutput()
	})
	return file, func() { await(t, done) }
}

// snapshot begins a transaction that keeps its first snapshot.
func (r *tape) snapshot() pgx.Tx {
	r.t.Helper()
	tx, err := r.db.BeginTx(r.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(r.t.Context())) })
	_, err = tx.Exec(r.t.Context(), `SELECT pg_current_snapshot()`)
	require.NoError(r.t, err)
	return tx
}

func TestStore_LogDump(t *testing.T) {
	t.Parallel()

	t.Run("a dump that waits for a lock has the records that leave the log while it waits", func(t *testing.T) {
		t.Parallel()
		for name, leave := range map[string]func(r *tape, leased []*outmill.Record){
			"for the records": func(r *tape, leased []*outmill.Record) {
				var again []outmill.Settlement
				for _, one := range leased {
					again = append(again, outmill.Settlement{Lease: one.Lease(), Delay: time.Minute, Err: "again"})
				}
				require.NoError(r.t, r.store.Abandon(r.t.Context(), again))
			},
			"for good": func(r *tape, leased []*outmill.Record) {
				require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(leased)))
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := pool(t)
				// pg_dump locks older tables first.
				execute(t, db, `CREATE SCHEMA a CREATE TABLE a (id integer)`)
				r := newTape(t, db, storetest.Options{})
				r.store.HeedSnapshotsFor(0)
				names := numbered("m", 10)
				leased := r.lease(r.store.Store, names...)
				r.moveOn(1)
				altering := r.begin()
				r.execIn(altering, `ALTER TABLE a.a ADD COLUMN b integer`)
				file, end := dumping(t, r.db.Config().ConnString())
				r.blocked(1)
				leave(r, leased)
				require.False(t, r.truncates(0))
				require.NoError(t, altering.Rollback(t.Context()))
				end()
				require.True(t, r.truncates(0))

				target := postgrestest.Database(t)
				restore(t, file, target)
				there := r.restored(connect(t, target))
				there.census(names...)
			})
		}
	})

	t.Run("a segment is kept for a young snapshot and not for an old one", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		leased := r.lease(r.store.Store, "a", "b")
		r.moveOn(1)
		young := r.snapshot()
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(leased)))
		require.False(t, r.truncates(0))
		after := r.snapshot()
		require.NoError(t, young.Rollback(t.Context()))
		require.True(t, r.truncates(0), "the other snapshot began when nothing was needed")
		require.NoError(t, after.Rollback(t.Context()))

		r.append("", "c")
		old := r.snapshot()
		require.Equal(t, []string{"c"}, r.ackAll(readers, outmill.OrderKey))
		r.moveOn(2)
		require.False(t, r.truncates(1))
		r.store.HeedSnapshotsFor(0)
		execute(t, r.db, r.sql(`UPDATE {retired} SET heed_until = now() + interval '1 minute'`))
		require.False(t, r.truncates(1), "a session was seen to wait")
		execute(t, r.db, r.sql(`UPDATE {retired} SET heed_until = now()`))
		require.True(t, r.truncates(1))
		require.NoError(t, old.Rollback(t.Context()))
	})

	t.Run("a segment is kept for a while after a session was seen to wait for a lock", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		leased := r.lease(r.store.Store, "a")
		r.moveOn(1)
		execute(t, r.db, `CREATE TABLE one (id integer)`)
		locked := r.begin()
		r.execIn(locked, `LOCK TABLE one`)
		dump := r.snapshot()
		waiting := async(func() (int, error) {
			_, err := dump.Exec(t.Context(), `LOCK TABLE one IN ACCESS SHARE MODE`)
			return 0, err
		})
		r.blocked(1)
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(leased)))
		require.Eventually(t, func() bool {
			return !r.truncates(0) && valueOf[bool](t, r.db, r.sql(`SELECT coalesce(heed_until > now(), false) FROM {retired}`))
		}, time.Minute, 10*time.Millisecond, "it has waited for long enough")
		r.commit(locked)
		await(t, waiting)
		r.store.HeedSnapshotsFor(0)
		require.False(t, r.truncates(0), "it may wait for the next one soon")
		require.NoError(t, dump.Rollback(t.Context()))
		require.True(t, r.truncates(0))
	})

	t.Run("a record written to a retired segment is in a dump that began before its ack", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		leased := r.lease(r.store.Store, "a")
		r.moveOn(0)
		// It will write to the segment that it has read from meta.
		writer := r.snapshot()
		r.execIn(writer, `SELECT segment FROM {meta}`)
		r.moveOn(1)
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(leased)))
		require.False(t, r.truncates(0))
		r.in(writer, "", "late")
		r.commit(writer)
		require.Equal(t, 0, r.segmentOf("late"))
		dump := r.snapshot()
		require.Equal(t, []string{"late"}, r.ackAll(readers, outmill.OrderKey))
		require.False(t, r.truncates(0), "the dump is younger than the first mark, and is to have it")
		r.execIn(dump, `LOCK TABLE {log} IN ACCESS SHARE MODE`)
		require.Equal(t, 1, func() (n int) {
			require.NoError(t, dump.QueryRow(t.Context(), r.sql(`SELECT count(*) FROM {log} WHERE message_id = 'late'`)).Scan(&n))
			return n
		}())
		require.NoError(t, dump.Rollback(t.Context()))
		require.True(t, r.truncates(0))
	})

	// In the dump each order is either handled or has its message, because the handler notes
	// the order before the ack.
	t.Run("each of many dumps under load restores every message that was committed before", func(t *testing.T) {
		testenv.Long(t, "servers that take over, are killed or are restored")
		t.Parallel()
		db := pool(t)
		execute(t, db, `CREATE SCHEMA a CREATE TABLE a (id integer) CREATE TABLE orders (name text PRIMARY KEY) CREATE TABLE handled (name text
			PRIMARY KEY)`)
		r := newTape(t, db, storetest.Options{})
		l := &dumpLoad{tape: r}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		working, inWork := errgroup.WithContext(ctx)
		for i := range 2 {
			working.Go(func() error { return l.publish(inWork, i) })
		}
		working.Go(func() error { return l.handle(inWork) })
		working.Go(func() error { return l.rotate(inWork) })
		working.Go(func() error { return l.alter(inWork) })

		var files []string
		for range testenv.Steps(2, 40) {
			file, end := dumping(t, r.db.Config().ConnString())
			end()
			files = append(files, file)
		}
		require.Eventually(t, func() bool { return l.truncated.Load() > 0 }, time.Minute, time.Millisecond)
		stop()
		if err := working.Wait(); !errors.Is(err, context.Canceled) {
			require.NoError(t, err)
		}
		for i, file := range files {
			target := postgrestest.Database(t)
			restore(t, file, target)
			there := r.restored(connect(t, target))
			orders := valueOf[int](t, there.db, `SELECT count(*) FROM a.orders`)
			lost := valueOf[[]string](t, there.db, r.sql(`SELECT coalesce(array_agg(name), ARRAY[]::text[]) FROM a.orders
WHERE name NOT IN (SELECT name FROM a.handled) AND name NOT IN (SELECT message_id FROM {readable})`))
			require.Empty(t, lost, "of %d orders in dump %d", orders, i)
			there.elapse(2 * time.Minute)
			there.ackAll(readers, outmill.OrderKey)
			there.census()
			there.db.Close()
		}
		t.Logf("%d orders, %d segments truncated", l.published.Load(), l.truncated.Load())
	})
}

// dumpLoad writes orders, each with its message, and handles them.
type dumpLoad struct {
	*tape
	published, handled, truncated atomic.Int64
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
		err := l.store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO a.orders VALUES ($1)`, name); err != nil {
				return err
			}
			return l.store.Append(ctx, &outmill.Record{Topic: "orders", Key: fmt.Sprint("key", n%5), MessageID: name})
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
	for ctx.Err() == nil {
		found, err := l.store.Claim(ctx, claimOf(l.owner, 20, outmill.OrderKey, "orders"))
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		var done []*outmill.Record
		var again []outmill.Settlement
		for _, one := range found {
			if one.Attempts == 0 && rand.IntN(5) == 0 {
				again = append(again, outmill.Settlement{Lease: one.Lease(), Err: "again"})
				continue
			}
			done = append(done, one)
		}
		if _, err := l.db.Exec(ctx, `INSERT INTO a.handled SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`, namesOf(done)); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if err := errors.Join(l.store.Abandon(ctx, again), l.store.Ack(ctx, "", leasesOf(done))); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		l.handled.Add(int64(len(done)))
	}
	return ctx.Err()
}

// rotate truncates the segments that it can, and makes appends write to an empty one.
func (l *dumpLoad) rotate(ctx context.Context) error {
	for segment := 0; ctx.Err() == nil; {
		for _, other := range []int{(segment + 1) % 3, (segment + 2) % 3} {
			done, err := l.store.Truncate(ctx, other)
			if err != nil {
				return errors.Join(ctx.Err(), err)
			}
			if done {
				l.truncated.Add(1)
			}
		}
		next := (segment + 1) % 3
		var empty bool
		if err := l.db.QueryRow(ctx, l.sql(fmt.Sprintf(`SELECT NOT EXISTS (SELECT 1 FROM {log_%d})`, next))).Scan(&empty); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if empty {
			if _, err := l.db.Exec(ctx, l.sql(`UPDATE {meta} SET segment = $1`), next); err != nil {
				return errors.Join(ctx.Err(), err)
			}
			segment = next
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
