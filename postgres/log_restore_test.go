package postgres_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// dump and restore copy a database with the server's own programs.
func dump(t *testing.T, url string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "dump")
	run(t, "pg_dump", "--format=custom", "--no-owner", "--file", file, url)
	return file
}

func restore(t *testing.T, file, url string) {
	t.Helper()
	run(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname", url, file)
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	bin, err := postgresengine.Binaries(t.Context())
	require.NoError(t, err)
	path := filepath.Join(bin, program)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: this PostgreSQL has no %s", program)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// restored returns the tape in another database with the same contents.
func (r *tape) restored(db *pgxpool.Pool) *tape {
	r.t.Helper()
	store := conforming{Store: newStore(r.t, db, r.store.config), config: r.store.config}
	there := &ring{t: r.t, db: db, store: store, gates: &gates{}, schema: r.schema}
	return &tape{ring: there, owner: r.owner}
}

func TestStore_LogRestore(t *testing.T) {
	t.Parallel()

	t.Run("readers continue in a dump of a log in another cluster and in the same", func(t *testing.T) {
		testenv.Long(t, "servers that take over, are killed or are restored")
		t.Parallel()
		home := postgrestest.Own(t)
		r := newTape(t, connect(t, postgrestest.DatabaseOn(t, home.URL)), storetest.Options{})
		// The other cluster will give the numbers of the remaining rows again.
		for range 500 {
			execute(t, r.db, `SELECT pg_current_xact_id()`)
		}
		unseen, huge := r.begin(), r.begin()
		r.in(unseen, "a", "a1", "a2", "a3")
		r.in(huge, "", numbered("huge", 15)...)
		r.append("", "acked", "open")
		passed := claimed(t, r.store, claimOf(r.owner, 10, outmill.OrderKey, "orders"))
		require.Equal(t, []string{"acked", "open"}, namesOf(passed))
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(passed[:1])))
		r.commit(huge)
		listed := claimed(t, r.store, claimOf(r.owner, 5, outmill.OrderKey, "orders"))
		require.Equal(t, numbered("huge", 15)[:5], namesOf(listed))
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(listed)))
		r.commit(unseen)
		r.append("a", "a4", "a5")
		left := slices.Concat(numbered("huge", 15)[5:], []string{"a1", "a2", "a3", "a4", "a5", "open"})
		r.census(left...)
		file := dump(t, r.db.Config().ConnString())

		away := postgrestest.Own(t)
		for name, url := range map[string]string{"another cluster": away.URL, "the same cluster": home.URL} {
			t.Run(name, func(t *testing.T) {
				target := postgrestest.DatabaseOn(t, url)
				restore(t, file, target)
				r := r.restored(connect(t, target))
				r.t = t
				want := slices.Clone(left)
				var names []string
				for i := range 1000 {
					if i%10 > 0 {
						execute(t, r.db, `SELECT pg_current_xact_id()`)
						continue
					}
					next := fmt.Sprint("next", i)
					want = append(want, next)
					r.append("a", next)
					if i%200 == 0 {
						found := claimed(t, r.store, claimOf(r.owner, 4, outmill.OrderKey, "orders"))
						names = append(names, namesOf(found)...)
						require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
					}
				}
				names = append(names, r.ackAll(readers, outmill.OrderKey)...)
				require.Equal(t, numbered("huge", 15)[5:], ofThem(names, "huge"))
				require.Equal(t, ofThem(want, "a", "n"), ofThem(names, "a", "n"))
				r.census("open")
				require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(passed[1:])), "the lease of before stands")
				r.census()
			})
		}
	})

	t.Run("in a log on another server a record committed between a claims mark and its page comes once", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		r.lease(r.store.Store, "old")
		r.elapse(2 * time.Minute)
		execute(t, r.db, r.sql(`UPDATE {meta} SET cluster = 'another'`))
		open := r.begin()
		r.in(open, "", "new")
		// The first claim on this server waits for the batch whose lease has ended: after its
		// mark, and before it reads its page.
		locked := r.lockBatches()
		found := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(r.owner, 10, outmill.OrderKey, "orders"))
		})
		r.blocked(1)
		r.commit(open)
		require.NoError(t, locked.Rollback(t.Context()))
		names := namesOf(await(t, found))
		names = append(names, r.drain(10, outmill.OrderKey)...)
		require.Equal(t, []string{"old", "new"}, names)
	})

	t.Run("in a log of another server a delivered record does not come again if its number is given again", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			r.append("", "old1", "old2")
			again := r.begin()
			r.asOf(r.numberOf(again))
			require.Equal(r.t, []string{"old1"}, r.take(1, order))
			require.Equal(r.t, []string{"old2"}, r.take(10, order))
			r.in(again, "", "late")
			r.append("", "new")
			require.Equal(r.t, []string{"new"}, r.take(10, order))
			r.commit(again)
			require.Equal(r.t, []string{"late"}, r.drain(10, order))
			r.census("old1", "old2", "new", "late")
		})
	})

	t.Run("in a log of another server a listed record comes once though its number is given again", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			huge := r.begin()
			r.in(huge, "", numbered("huge", 9)...)
			r.append("", "passed")
			require.Equal(r.t, []string{"passed"}, r.take(10, order))
			r.commit(huge)
			require.Equal(r.t, numbered("huge", 9)[:2], r.take(2, order))
			again := r.begin()
			r.asOf(r.numberOf(again))
			require.Equal(r.t, numbered("huge", 9)[2:4], r.take(2, order))
			r.in(again, "", "late")
			require.Equal(r.t, numbered("huge", 9)[4:6], r.take(2, order))
			r.commit(again)
			require.Equal(r.t, append(numbered("huge", 9)[6:], "late"), r.drain(2, order))
			r.census(append(numbered("huge", 9), "passed", "late")...)
		})
	})

	t.Run("readers continue in a dump in a clone of its cluster that has new transactions", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "servers of which one is a copy of the other's disk")
		home, away := postgrestest.Own(t), postgrestest.Own(t)
		clone(t, home, away)
		r := newTape(t, connect(t, postgrestest.DatabaseOn(t, home.URL)), storetest.Options{})
		for range 3000 {
			execute(t, r.db, `SELECT pg_current_xact_id()`)
		}
		r.append("a", numbered("m", 20)...)
		require.Equal(t, numbered("m", 20)[:5], r.take(5, outmill.OrderKey))
		file := dump(t, r.db.Config().ConnString())

		target := postgrestest.DatabaseOn(t, away.URL)
		restore(t, file, target)
		there := r.restored(connect(t, target))
		there.append("a", "new")
		require.Equal(t, append(numbered("m", 20)[5:], "new"), there.drain(7, outmill.OrderKey))
	})
}

// ofThem are the names that begin with any of the prefixes.
func ofThem(names []string, prefixes ...string) []string {
	var some []string
	for _, name := range names {
		if slices.ContainsFunc(prefixes, func(p string) bool { return len(name) >= len(p) && name[:len(p)] == p }) {
			some = append(some, name)
		}
	}
	return some
}

// asOf makes all rows of the log but one those of another server, on which a transaction had
// the same number as one of this server.
func (r *tape) asOf(number int64) {
	r.t.Helper()
	execute(r.t, r.db, r.sql(fmt.Sprintf(`UPDATE {log} SET xid = '%d' WHERE message_id <> 'passed'`, number)))
	execute(r.t, r.db, r.sql(fmt.Sprintf(`UPDATE {late} SET xid = '%d'`, number)))
	execute(r.t, r.db, r.sql(`UPDATE {meta} SET past = (SELECT max(pos) FROM {log})`))
}

// clone copies the disk of a server to another one.
func clone(t *testing.T, from, to *postgresengine.Engine) {
	t.Helper()
	require.NoError(t, from.Stop(t.Context(), postgresengine.Fast))
	require.NoError(t, to.Stop(t.Context(), postgresengine.Fast))
	copied := func(a, b string) {
		out, err := exec.CommandContext(t.Context(), "cp", "-a", a, b).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(to.Dir, "data")))
	copied(filepath.Join(from.Dir, "data"), filepath.Join(to.Dir, "data"))
	require.NoError(t, from.Start(t.Context()))
	require.NoError(t, to.Start(t.Context()))
}
