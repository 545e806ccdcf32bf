package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

func TestStore_LogWalk(t *testing.T) {
	t.Parallel()

	t.Run("in a log a claim waits for another one of its topic and sees its leases", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			r.append("", "a", "b", "c")
			stopped := r.gates.before(r.t, addsBatch, 1)
			first := async(func() ([]*outmill.Record, error) {
				return r.gated.Claim(r.t.Context(), claimOf(r.owner, 2, order, "orders"))
			})
			stopped.wait(r.t)
			second := async(func() ([]*outmill.Record, error) {
				return r.store.Claim(r.t.Context(), claimOf(r.owner, 2, order, "orders"))
			})
			r.blocked(1)
			stopped.open()
			require.Equal(r.t, []string{"a", "b"}, namesOf(await(r.t, first)))
			require.Equal(r.t, []string{"c"}, namesOf(await(r.t, second)))
			r.census("a", "b", "c")
		})
	})

	t.Run("in a log places that sessions keep are refused by the next claim", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		r.lease(r.store.Store, "a")
		r.append("", "b")
		execute(t, r.db, r.sql(`ALTER SEQUENCE {records_seq_seq} CACHE 20`))
		for _, order := range allOrders {
			_, err := r.store.Claim(t.Context(), claimOf(r.owner, 1, order, "orders"))
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "CACHE")
		}
		execute(t, r.db, r.sql(`ALTER SEQUENCE {records_seq_seq} CACHE 1`))
		require.Equal(t, []string{"b"}, r.take(1, outmill.OrderKey))
	})

	t.Run("a log whose sequence was set back is neither read nor truncated", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		execute(t, r.db, r.sql(`SELECT setval('{records_seq_seq}', 1000)`))
		r.lease(r.store.Store, "a")
		last := valueOf[int64](t, r.db, r.sql(`SELECT max(pos) FROM {batches}`))
		execute(t, r.db, r.sql(`SELECT setval('{records_seq_seq}', 1, false)`))
		r.append("", "during")
		// A record in the table makes the claim read.
		require.NoError(t, r.store.Append(t.Context(), &outmill.Record{Topic: "orders", TimeToLive: time.Hour}))
		var remedies []string
		for name, call := range map[string]func() error{
			"claim": func() error {
				_, err := r.store.Claim(t.Context(), claimOf(r.owner, 1, outmill.OrderKey, "orders"))
				return err
			},
			"upkeep": func() error { return r.store.TendSegments(t.Context()) },
		} {
			err := call()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, name)
			require.ErrorContains(t, err, fmt.Sprintf(", %d))", last), name)
			_, rest, _ := strings.Cut(err.Error(), ": SELECT ")
			remedy, _, _ := strings.Cut(rest, ", and see")
			remedies = append(remedies, "SELECT "+remedy)
		}
		require.Equal(t, 1, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {log} WHERE message_id = 'during'`)))

		for _, remedy := range remedies {
			execute(t, r.db, remedy)
		}
		r.append("", "later")
		require.Contains(t, r.take(10, outmill.OrderKey), "later")
	})

	t.Run("a sequence that was not copied is noticed and the documented remedy works", func(t *testing.T) {
		t.Parallel()
		for name, read := range map[string]int{"behind what was read": 8, "behind the backlog": 2, "of a topic that was never read": 0} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				eachOrder(t, func(r *tape, order outmill.Order) {
					old := numbered("old", 8)
					r.append("key", old...)
					if read > 0 {
						found := claimed(r.t, r.store, claimOf(r.owner, read, order, "orders"))
						require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(found)))
					}
					since := valueOf[time.Time](r.t, r.db, `SELECT clock_timestamp()`)
					execute(r.t, r.db, r.sql(`SELECT setval('{records_seq_seq}', 3)`))
					r.append("key", "new1", "new2", "new3")
					require.NoError(r.t, r.store.Append(r.t.Context(),
						&outmill.Record{Topic: "orders", Key: "key", MessageID: "new4", TimeToLive: time.Hour}))
					for range 2 {
						_, err := r.store.Claim(r.t.Context(), claimOf(r.owner, 10, order, "orders"))
						require.ErrorIs(r.t, err, outmill.ErrInvalidConfig)
						require.ErrorContains(r.t, err, "sequence")
					}
					execute(r.t, r.db, r.remedy(since))
					require.Equal(r.t, slices.Concat(old[read:], []string{"new1", "new2", "new3", "new4"}), r.drain(3, order))
				})
			})
		}
	})

	t.Run("a sequence that was not copied is noticed before a log is taken for one of another server", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		r.append("", numbered("old", 8)...)
		since := valueOf[time.Time](t, r.db, `SELECT clock_timestamp()`)
		execute(t, r.db, r.sql(`SELECT setval('{records_seq_seq}', 3)`))
		execute(t, r.db, r.sql(`UPDATE {meta} SET cluster = 'another'`))
		_, err := r.store.Claim(t.Context(), claimOf(r.owner, 10, outmill.OrderKey, "orders"))
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.Equal(t, "another", valueOf[string](t, r.db, r.sql(`SELECT cluster FROM {meta}`)))
		execute(t, r.db, r.remedy(since))
		require.Equal(t, numbered("old", 8), r.drain(3, outmill.OrderKey))
	})

	// In the table, statements may deadlock, and are repeated.
	t.Run("of any concurrent calls none fails and each record is in one place", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: "others"}))
			w := &roaming{r: r, join: r.startJoin(roles.Join{Unsealed: true})}
			stores := []*postgres.Store{r.store.Store, r.gated}
			workers, ctx := errgroup.WithContext(t.Context())
			for i := range 16 {
				workers.Go(func() error {
					owner, store := outmill.NewOwnerToken(), stores[i%2]
					for range testenv.Steps(10, 60) {
						var err error
						switch rand.N(5) {
						case 0, 1:
							err = w.append(ctx, store)
						case 2:
							err = w.operate(ctx, store)
						default:
							err = w.work(ctx, store, owner)
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, workers.Wait())
			r.batchesAreSound()
			require.Empty(t, valueOf[string](t, r.db, r.sql(sqlTwice)))
			shown := map[string]string{}
			for _, row := range readable(t, r.db, r.schema) {
				shown[row.ID] = row.Status
			}
			listed := map[string]string{}
			found, err := r.store.List(t.Context(), outmill.ListQuery{Limit: 10_000})
			require.NoError(t, err)
			for _, record := range found {
				listed[record.ID.String()] = string(record.Status)
			}
			require.Equal(t, listed, shown, "what List lists, and what the view for people shows")
			t.Logf("%d deadlocks", r.deadlocks())
		})
	})
}

// remedy returns the block of docs/postgres.md for a sequence that was behind, for records that
// were written since a time.
func (r *tape) remedy(since time.Time) string {
	r.t.Helper()
	docs, err := os.ReadFile("../docs/postgres.md")
	require.NoError(r.t, err)
	_, rest, found := strings.Cut(string(docs), "\nDO $$\n")
	require.True(r.t, found)
	block, _, found := strings.Cut(rest, "$$;\n")
	require.True(r.t, found)
	require.Contains(r.t, block, "'2026-01-31 12:00:00+00'")
	block = strings.ReplaceAll(block, "2026-01-31 12:00:00+00", since.Format(time.RFC3339Nano))
	return "DO $$" + strings.ReplaceAll(block, "outmill.", r.schema+".") + "$$"
}

// roaming makes any call at any time, on three topics of two groups.
type roaming struct {
	r    *ring
	mu   sync.Mutex
	ids  []outmill.WorkItemID
	join outmill.JoinID
}

func (w *roaming) someID() []outmill.WorkItemID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) == 0 {
		return nil
	}
	some := make([]outmill.WorkItemID, 1+rand.N(5))
	for i := range some {
		some[i] = w.ids[rand.N(len(w.ids))]
	}
	return some
}

func (w *roaming) append(ctx context.Context, store *postgres.Store) error {
	var records []*outmill.Record
	for range 1 + rand.N(6) {
		one := &outmill.Record{Topic: fmt.Sprint("t", rand.N(3)), Key: fmt.Sprint("key", rand.N(4))}
		if rand.N(8) == 0 {
			one.Joins = []outmill.JoinID{w.join}
		}
		if rand.N(8) == 0 {
			one.Delay = time.Millisecond
		}
		records = append(records, one)
	}
	var err error
	if rand.N(2) == 0 {
		err = store.Append(ctx, records...)
	} else {
		err = store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return store.Append(ctx, records...) })
	}
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, one := range records {
			w.ids = append(w.ids, one.ID)
		}
		w.ids = w.ids[max(0, len(w.ids)-500):]
	}
	return err
}

func (w *roaming) work(ctx context.Context, store *postgres.Store, owner outmill.OwnerToken) error {
	req := claimOf(owner, 1+rand.N(9), allOrders[rand.N(3)])
	req.Group, req.Lease = []string{readers, "others"}[rand.N(2)], []time.Duration{time.Millisecond, time.Minute}[rand.N(2)]
	if req.Order == outmill.OrderKey {
		req.KeyPolicy = []outmill.KeyPolicy{outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark}[rand.N(3)]
	}
	found, err := store.Claim(ctx, req)
	if err != nil {
		return err
	}
	leases := leasesOf(found)
	rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
	some := leases[:len(leases)/2]
	switch rand.N(7) {
	case 0:
		_, err = store.Extend(ctx, time.Minute, some)
	case 1:
		err = store.Release(ctx, some)
	case 2:
		var failures []outmill.Settlement
		for _, l := range some {
			failures = append(failures, outmill.Settlement{Lease: l, Err: "no", Park: rand.N(2) == 0})
		}
		err = store.Fail(ctx, failures)
	case 3:
		var list []outmill.Settlement
		for _, l := range some {
			list = append(list, outmill.Settlement{Lease: l, Delay: time.Duration(rand.N(3)) * time.Millisecond})
		}
		err = store.Abandon(ctx, list)
	case 4:
		return nil // it dies
	}
	return errors.Join(err, store.Ack(ctx, "", leases))
}

func (w *roaming) operate(ctx context.Context, store *postgres.Store) error {
	var err error
	ids := w.someID()
	switch rand.N(14) {
	case 0, 1, 2:
		_, err = store.Delete(ctx, ids...)
	case 3, 4:
		_, err = store.Requeue(ctx, ids...)
	case 5, 6:
		if len(ids) > 0 {
			if err = store.AttachStep(ctx, w.join, ids[0]); errors.Is(err, roles.ErrUnknownMessage) {
				err = nil
			}
		}
	case 7:
		_, err = store.DropGroup(ctx, "others")
		err = errors.Join(err, store.RegisterGroup(ctx, outmill.Registration{Group: "others"}))
	case 8:
		_, err = w.r.db.Exec(ctx, w.r.sql(`UPDATE {meta} SET segment = (segment + 1) % 3`))
	case 9:
		err = store.Evacuate(ctx, rand.N(3))
	case 10:
		_, err = store.Truncate(ctx, rand.N(3))
		err = errors.Join(err, store.ForgetLines(ctx))
	case 11, 12:
		err = store.TidyBatches(ctx)
	default:
		_, err = store.ReapExpired(ctx, 20)
	}
	return err
}

func (r *ring) deadlocks() int {
	r.t.Helper()
	return valueOf[int](r.t, r.db, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}
