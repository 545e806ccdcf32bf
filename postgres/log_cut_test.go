package postgres_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

// cuttable is a store with one connection, which a test can cut.
type cuttable struct {
	*postgres.Store
	proxy *proxy.Proxy
	gates *gates
}

func (r *tape) cuttable() *cuttable {
	r.t.Helper()
	u, err := url.Parse(r.db.Config().ConnString())
	require.NoError(r.t, err)
	c := &cuttable{proxy: proxy.New(r.t, u.Host), gates: &gates{}}
	u.Host = c.proxy.Addr()
	c.Store = newStore(r.t, connectAs(r.t, u.String(), func(config *pgxpool.Config) {
		config.MaxConns = 1
		config.ConnConfig.Tracer = c.gates
	}), r.store.config)
	return c
}

// cutAt has the batch at which each call is cut: its last batch, which has the text.
var cutAt = map[string]struct {
	text string
	call func(ctx context.Context, r *tape, c *cuttable, found []*outmill.Record) error
	// before and after are the records that are left for another owner if the cut comes before
	// or after the server has run the call's last batch.
	before, after []string
}{
	"claim": {
		addsBatch,
		func(ctx context.Context, r *tape, c *cuttable, _ []*outmill.Record) error {
			_, err := c.Claim(ctx, claimOf(r.owner, 10, outmill.OrderKey, "orders"))
			return err
		},
		[]string{"a", "b", "c", "d"}, []string{"a", "b", "c", "d"},
	},
	"ack": {
		setsBits,
		func(ctx context.Context, _ *tape, c *cuttable, found []*outmill.Record) error {
			return c.Ack(ctx, "", leasesOf(found[:2]))
		},
		[]string{"a", "b", "c", "d"}, []string{"c", "d"},
	},
	"release": {
		setsBits,
		func(ctx context.Context, _ *tape, c *cuttable, found []*outmill.Record) error {
			return c.Release(ctx, leasesOf(found[:2]))
		},
		[]string{"a", "b", "c", "d"}, []string{"a", "b", "c", "d"},
	},
	"park": {
		"SET stage = 7",
		func(ctx context.Context, _ *tape, c *cuttable, found []*outmill.Record) error {
			return c.Fail(ctx, []outmill.Settlement{{Lease: found[0].Lease(), Err: "dead", Park: true}})
		},
		[]string{"a", "b", "c", "d"}, []string{"b", "c"},
	},
}

func TestStore_LogCut(t *testing.T) {
	t.Parallel()

	t.Run("in a log a call that is cut off is done whole or not at all", func(t *testing.T) {
		t.Parallel()
		for name, cut := range cutAt {
			for _, when := range []string{"before", "after"} {
				t.Run(name+" "+when, func(t *testing.T) {
					t.Parallel()
					r := newTape(t, tapePool(t), storetest.Options{})
					c := r.cuttable()
					write := func() {
						r.append("key", "a")
						r.append("", "b", "c")
					}
					claim := func(from outmill.Queue) []*outmill.Record {
						write()
						return claimed(t, from, claimOf(r.owner, 10, outmill.OrderKey, "orders"))
					}
					// Run the call once without a cut, so that all statements are prepared.
					var found []*outmill.Record
					if name != "claim" {
						found = claim(c)
						require.Len(t, found, 3)
					} else {
						write()
					}
					require.NoError(t, cut.call(t.Context(), r, c, found))
					_, err := r.db.Exec(t.Context(), r.sql(`TRUNCATE {log}, {batches}, {ended}, {late}, {records}, {lanes}`))
					require.NoError(t, err)
					if name != "claim" {
						found = claim(c)
					} else {
						write()
					}
					r.append("key", "d")

					stopped := c.gates.before(t, cut.text, 1)
					done := async(func() (int, error) { return 0, cut.call(t.Context(), r, c, found) })
					stopped.wait(t)
					if when == "before" {
						c.proxy.CutAll()
					} else {
						c.proxy.LoseAnswers()
					}
					stopped.open()
					require.Error(t, (<-done).err)
					r.batchesAreSound()
					require.Empty(t, valueOf[string](t, r.db, r.sql(sqlTwice)))
					// Another owner gets all remaining records, now or after the end of the
					// leases.
					left := cut.before
					if when == "after" {
						left = cut.after
					}
					r.elapse(2 * time.Minute)
					got := namesOf(claimed(t, r.store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders")))
					require.Subset(t, got, left)
					require.Len(t, got, len(left))
				})
			}
		}
	})

	t.Run("in a log an ack of both lanes that is cut off acks all or none", func(t *testing.T) {
		t.Parallel()
		for _, when := range []string{"before", "after"} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				c := r.cuttable()
				bothClaimed := func() []*outmill.Record {
					// "records" is in the records now, and "log" in the log. Another store has
					// claimed them for this owner.
					require.NoError(t, r.store.Release(t.Context(), leasesOf(r.lease(r.store.Store, "records"))))
					r.append("", "log")
					found := claimed(t, r.store, claimOf(r.owner, 10, outmill.OrderNone, "orders"))
					require.ElementsMatch(t, []string{"records", "log"}, namesOf(found))
					return found
				}
				// Run the call once without a cut, so that all statements are prepared.
				require.NoError(t, c.Ack(t.Context(), "", leasesOf(bothClaimed())))
				r.census()
				found := bothClaimed()
				stopped := c.gates.before(t, setsBits, 1)
				done := async(func() (int, error) { return 0, c.Ack(t.Context(), "", leasesOf(found)) })
				stopped.wait(t)
				if when == "before" {
					c.proxy.CutAll()
				} else {
					c.proxy.LoseAnswers()
				}
				stopped.open()
				require.Error(t, (<-done).err)
				if when == "before" {
					r.census("records", "log")
				} else {
					r.census()
				}
				require.NoError(t, c.Ack(t.Context(), "", leasesOf(found)), "once more")
				r.census()
			})
		}
	})

	t.Run("a truncation that is cut off truncates all or nothing", func(t *testing.T) {
		t.Parallel()
		for _, when := range []string{"before", "after"} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				c := r.cuttable()
				fill := func(segment int) {
					require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(r.lease(r.store.Store, "a", "b"))))
					execute(t, r.db, r.sql(`UPDATE {meta} SET segment = $1`), segment)
				}
				rows := func() int { return valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {log_0}`)) }
				fill(1)
				done, err := c.Truncate(t.Context(), 0)
				require.NoError(t, err)
				require.True(t, done)
				execute(t, r.db, r.sql(`UPDATE {meta} SET segment = 0`))
				fill(1)
				stopped := c.gates.before(t, "log_truncate", 1)
				truncated := async(func() (bool, error) { return c.Truncate(t.Context(), 0) })
				stopped.wait(t)
				if when == "before" {
					c.proxy.CutAll()
				} else {
					c.proxy.LoseAnswers()
				}
				stopped.open()
				require.Error(t, (<-truncated).err)
				require.Equal(t, map[string]int{"before": 2, "after": 0}[when], rows())
				_, err = c.Truncate(t.Context(), 0)
				require.NoError(t, err)
				require.Zero(t, rows())
				require.Equal(t, []string{"c"}, namesOf(r.lease(r.store.Store, "c")))
			})
		}
	})
}
