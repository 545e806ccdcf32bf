package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// of returns another store on the ring's tables, of a program with that lane.
func (r *ring) of(lane postgres.Lane) *postgres.Store {
	config := r.store.config
	config.Lane = lane
	return newStore(r.t, r.db, config)
}

func TestStore_LogSwitch(t *testing.T) {
	t.Parallel()

	t.Run("a claim that began before the log was turned on skips none of its records", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			t.Run(order.String(), func(t *testing.T) {
				t.Parallel()
				r := newRing(t, postgres.LaneRows, storetest.Options{})
				owner := outmill.NewOwnerToken()
				r.append("key", "before")
				stopped := r.gates.before(t, "pg_advisory_xact_lock", 1)
				claim := async(func() ([]*outmill.Record, error) {
					return r.gated.Claim(t.Context(), claimOf(owner, 10, order, "orders"))
				})
				stopped.wait(t)
				logging := r.of(postgres.LaneLog)
				require.NoError(t, logging.Ensure(t.Context()))
				require.NoError(t, logging.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "key", MessageID: "in the log"}))
				r.append("key", "after")
				stopped.open()
				require.Empty(t, await(t, claim))
				found, err := r.gated.Claim(t.Context(), claimOf(owner, 10, order, "orders"))
				require.NoError(t, err)
				require.Equal(t, []string{"before", "in the log", "after"}, namesOf(found))
			})
		}
	})

	t.Run("a store that never claims sees the log that another has turned on", func(t *testing.T) {
		t.Parallel()
		for name, look := range map[string]func(ctx context.Context, s *postgres.Store, made *outmill.Record) (found int, err error){
			"get": func(ctx context.Context, s *postgres.Store, made *outmill.Record) (int, error) {
				_, err := s.Get(ctx, made.ID)
				return 1, err
			},
			"list": func(ctx context.Context, s *postgres.Store, _ *outmill.Record) (int, error) {
				records, err := s.List(ctx, outmill.ListQuery{})
				return len(records), err
			},
			"stats": func(ctx context.Context, s *postgres.Store, _ *outmill.Record) (int, error) {
				stats, err := s.Stats(ctx, 0)
				if len(stats) == 0 {
					return 0, err
				}
				return stats[0].Pending, err
			},
			"delete": func(ctx context.Context, s *postgres.Store, made *outmill.Record) (int, error) {
				return s.Delete(ctx, made.ID)
			},
			"drop group": func(ctx context.Context, s *postgres.Store, _ *outmill.Record) (int, error) {
				dropped, err := s.DropGroup(ctx, readers)
				return dropped.GivenBack, err
			},
			"attach step": func(ctx context.Context, s *postgres.Store, made *outmill.Record) (int, error) {
				join := &roles.Join{ExpectedSteps: 1}
				if err := s.StartJoin(ctx, join); err != nil {
					return 0, err
				}
				return 1, s.AttachStep(ctx, join.ID, made.ID)
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, postgres.LaneRows, storetest.Options{Retain: time.Hour})
				s := r.of("")
				_, err := s.Stats(t.Context(), 0)
				require.NoError(t, err)
				logging := r.of(postgres.LaneLog)
				require.NoError(t, logging.Ensure(t.Context()))
				made := &outmill.Record{Topic: "orders"}
				require.NoError(t, logging.Append(t.Context(), made))
				found, err := look(t.Context(), s, made)
				require.NoError(t, err)
				require.Equal(t, 1, found)
			})
		}
	})

	t.Run("the log is turned on and left again while writers and workers run", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		s := &switching{r: r, next: map[string]int{}, seen: map[string]int{}}
		workers, ctx := errgroup.WithContext(t.Context())
		for range 3 {
			store := r.of("")
			workers.Go(func() error { return s.work(ctx, store) })
		}
		indifferent := r.of("")
		// All stores run at once: before the log is on, while it is on, and after some have
		// switched back.
		for _, stores := range [][]*postgres.Store{
			{indifferent, r.of(postgres.LaneRows), r.of("")}, {indifferent, r.of(""), r.of("")},
			{r.of(postgres.LaneRows), indifferent, r.of(postgres.LaneLog)}, {r.of(postgres.LaneRows), r.of(postgres.LaneRows)},
		} {
			writers, writing := errgroup.WithContext(ctx)
			for i, store := range stores {
				writers.Go(func() error { return s.write(writing, store, 40) })
				if i == 0 {
					writers.Go(func() error { return r.of(postgres.LaneLog).Ensure(writing) })
				}
			}
			if err := writers.Wait(); err != nil {
				// An error of a worker ends the writers too, and is the cause.
				s.end()
				require.NoError(t, errors.Join(workers.Wait(), err))
			}
		}
		s.end()
		require.NoError(t, workers.Wait())
		require.Positive(t, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {log}`)))
		r.census()
	})

	t.Run("a schema that is new has the log and one that was there before only if a program says so", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		for _, c := range []struct {
			name   string
			before postgres.Lane
			exists bool
			lane   postgres.Lane
			want   string
		}{
			{name: "new", want: "log"},
			{name: "new, rows", lane: postgres.LaneRows, want: "rows"},
			{name: "with rows", exists: true, before: postgres.LaneRows, want: "rows"},
			{name: "with rows, log", exists: true, before: postgres.LaneRows, lane: postgres.LaneLog, want: "log"},
			{name: "with a log", exists: true, before: postgres.LaneLog, want: "log"},
			{name: "with a log, rows", exists: true, before: postgres.LaneLog, lane: postgres.LaneRows, want: "log"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				schema := ownSchema(t, db)
				if c.exists {
					require.NoError(t, newStore(t, db, postgres.Config{Schema: schema, Lane: c.before}).Ensure(t.Context()))
				}
				store := newStore(t, db, postgres.Config{Schema: schema, Lane: c.lane})
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.Ensure(t.Context()), "again")
				require.Equal(t, c.want, valueOf[string](t, db, "SELECT lane FROM "+schema+".meta"))
			})
		}
	})
}

// switching are writers whose programs differ in their lane, and workers, while
// the log is turned on.
type switching struct {
	r    *ring
	mu   sync.Mutex
	next map[string]int
	seen map[string]int
	keys [4]sync.Mutex
	over bool
	want int
}

func (s *switching) write(ctx context.Context, store *postgres.Store, n int) error {
	for range n {
		k := rand.N(len(s.keys))
		// The application serialises the writers of a key.
		s.keys[k].Lock()
		key := "key" + strconv.Itoa(k)
		s.mu.Lock()
		i := s.next[key]
		s.mu.Unlock()
		err := store.Append(ctx, &outmill.Record{Topic: "orders", Key: key, MessageID: strconv.Itoa(i)},
			&outmill.Record{Topic: "orders", Key: key, MessageID: strconv.Itoa(i + 1)})
		if err == nil {
			s.mu.Lock()
			s.next[key] += 2
			s.want += 2
			s.mu.Unlock()
		}
		s.keys[k].Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *switching) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *switching) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := 0
	for _, n := range s.seen {
		got += n
	}
	return s.over && got == s.want
}

func (s *switching) work(ctx context.Context, store *postgres.Store) error {
	owner := outmill.NewOwnerToken()
	for !s.done() && ctx.Err() == nil {
		found, err := store.Claim(ctx, claimOf(owner, 1+rand.N(9), outmill.OrderKey, "orders"))
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, r := range found {
			if want := strconv.Itoa(s.seen[r.Key]); r.MessageID != want {
				err = errors.Join(err, fmt.Errorf("%s: got %s, not %s", r.Key, r.MessageID, want))
			}
			s.seen[r.Key]++
		}
		s.mu.Unlock()
		if err := errors.Join(err, store.Ack(ctx, "", leasesOf(found))); err != nil {
			return err
		}
		if len(found) == 0 {
			_ = pause(ctx, time.Millisecond)
		}
	}
	return ctx.Err()
}
