package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// stop stops after the first batch that has a statement with the text. Unlike a gate it does
// not depend on the next batch.
type stop struct {
	text            string
	once            sync.Once
	reached, opened chan struct{}
	open            func()
}

type ofStop struct{}

// stopping is a store on the same tables that stops.
func (r *ring) stopping(text string) (*postgres.Store, *stop) {
	r.t.Helper()
	s := &stop{text: text, reached: make(chan struct{}), opened: make(chan struct{})}
	s.open = sync.OnceFunc(func() { close(s.opened) })
	config := r.db.Config()
	config.ConnConfig.Tracer = s
	watched, err := pgxpool.NewWithConfig(context.WithoutCancel(r.t.Context()), config)
	require.NoError(r.t, err)
	r.t.Cleanup(watched.Close)
	r.t.Cleanup(s.open)
	return newStore(r.t, watched, r.store.config), s
}

func (s *stop) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.reached:
	case <-time.After(patience):
		require.FailNow(t, "it was not reached", s.text)
	}
}

func (s *stop) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return strings.Contains(q.SQL, s.text) }) {
		return context.WithValue(ctx, ofStop{}, true)
	}
	return ctx
}

func (s *stop) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if ctx.Value(ofStop{}) != nil {
		s.once.Do(func() {
			close(s.reached)
			<-s.opened
		})
	}
}

func (*stop) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*stop) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*stop) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// stepsOf appends one step for each name.
func (r *ring) stepsOf(id outmill.JoinID, names ...string) []*outmill.Record {
	r.t.Helper()
	records := make([]*outmill.Record, len(names))
	for i, name := range names {
		records[i] = &outmill.Record{Topic: "steps", MessageID: name, Joins: []outmill.JoinID{id}}
	}
	require.NoError(r.t, r.store.Append(r.t.Context(), records...))
	return records
}

func (r *ring) startJoin(join roles.Join) outmill.JoinID {
	r.t.Helper()
	require.NoError(r.t, r.store.StartJoin(r.t.Context(), &join))
	return join.ID
}

// claimFrom claims all due records of the topic.
func (r *ring) claimFrom(topic string) []*outmill.Record {
	r.t.Helper()
	return claimed(r.t, r.store, claimOf(outmill.NewOwnerToken(), 100, outmill.OrderNone, topic))
}

// decidedJoin starts an inner join whose only step is acked.
func (r *ring) decidedJoin() outmill.JoinID {
	r.t.Helper()
	id := r.startJoin(roles.Join{ExpectedSteps: 1})
	r.stepsOf(id, "inner")
	require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(r.claimFrom("steps"))))
	return id
}

// finishInto finishes the join with a record that is a step of outer. It runs between after
// FinishJoin has asked whether outer takes the step.
func (r *ring) finishInto(id, outer outmill.JoinID, between func()) {
	r.t.Helper()
	store, stopped := r.stopping(`WHERE join_id = j.id`)
	finished := async(func() (roles.FinishResult, error) {
		return store.FinishJoin(r.t.Context(), id, roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) {
			return &outmill.Record{Topic: "next", MessageID: "next", Joins: []outmill.JoinID{outer}}, nil
		}})
	})
	stopped.wait(r.t)
	between()
	stopped.open()
	require.True(r.t, await(r.t, finished).Finished)
	require.Equal(r.t, []string{"next"}, namesOf(r.claimFrom("next")))
}

func TestStore_JoinsAttack(t *testing.T) {
	t.Parallel()

	t.Run("a follower is published also if the join around it ends just then", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		outer := r.startJoin(roles.Join{ExpectedSteps: 1})
		r.finishInto(r.decidedJoin(), outer, func() {
			require.NoError(t, r.store.CancelJoin(t.Context(), outer, "enough"))
		})
	})

	t.Run("a follower is published also if another one takes its place just then", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			outer := r.startJoin(roles.Join{ExpectedSteps: 1})
			r.finishInto(r.decidedJoin(), outer, func() { r.stepsOf(outer, "quicker") })
		})
	})

	t.Run("an append of an id that exists attaches nothing also if the groups have changed", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			ctx := t.Context()
			there := &outmill.Record{Topic: "steps"}
			require.NoError(t, r.gated.Append(ctx, there))
			require.NoError(t, r.store.RegisterGroup(ctx, outmill.Registration{Group: "others"}))
			id := r.startJoin(roles.Join{ExpectedSteps: 1})
			again := &outmill.Record{ID: there.ID, Topic: "steps", Joins: []outmill.JoinID{id}}
			require.Error(t, r.gated.Append(ctx, again))
			steps, err := r.store.ListSteps(ctx, id, outmill.WorkItemID{}, 0)
			require.NoError(t, err)
			require.Empty(t, steps)
		})
	})

	t.Run("an ack whose context ends after its commit wakes the waiting records", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			id := r.startJoin(roles.Join{ExpectedSteps: 1})
			r.stepsOf(id, "step")
			waiter := &outmill.Record{Topic: "waits", WaitsFor: id, Delay: time.Hour}
			require.NoError(t, r.store.Append(t.Context(), waiter))
			leases := leasesOf(r.claimFrom("steps"))

			ctx, cancel := context.WithCancel(t.Context())
			store, committed := r.stopping("count_steps")
			acked := async(func() (struct{}, error) { return struct{}{}, store.Ack(ctx, "", leases) })
			committed.wait(t)
			cancel()
			committed.open()
			await(t, acked)
			require.Len(t, r.claimFrom("waits"), 1, "the ack said that it was done")
		})
	})

	t.Run("a dead record is requeued while it is being attached", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{Retain: time.Hour}, func(t *testing.T, r *ring) {
			ctx := t.Context()
			dead := r.append("", "dead")[0]
			require.NoError(t, r.store.Fail(ctx, []outmill.Settlement{{Lease: r.claim(outmill.NewOwnerToken(), 1)[0].Lease()}}))
			id := r.startJoin(roles.Join{ExpectedSteps: 1})

			stopped := r.gates.before(t, "INSERT INTO \""+r.schema+"\".\"join_members\"", 1)
			attached := async(func() (struct{}, error) { return struct{}{}, r.gated.AttachStep(ctx, id, dead.ID) })
			stopped.wait(t)
			requeued := async(func() (int, error) { return r.store.Requeue(ctx, dead.ID) })
			r.blocked(1)
			stopped.open()
			await(t, attached)
			require.Equal(t, 1, await(t, requeued))
			require.Len(t, r.claim(outmill.NewOwnerToken(), 1), 1)
			join, err := r.store.GetJoin(ctx, id)
			require.NoError(t, err)
			require.Equal(t, [2]int{0, 0}, [2]int{join.CompletedSteps, join.FailedSteps}, "the step is back")
		})
	})

	t.Run("a transaction with a followers dedup key that stays open stalls no ack", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			ctx := t.Context()
			id := r.startJoin(roles.Join{ExpectedSteps: 2, Policy: roles.JoinAny})
			r.stepsOf(id, "first", "second")
			steps := r.claimFrom("steps")
			require.NoError(t, r.store.Ack(ctx, "", leasesOf(steps[:1])))

			tx := r.begin()
			require.NoError(t, r.store.Append(r.store.WithTx(ctx, tx), &outmill.Record{Topic: "next", DedupKey: "k"}))
			finished := async(func() (roles.FinishResult, error) {
				return r.gated.FinishJoin(ctx, id, roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) {
					return &outmill.Record{Topic: "next", DedupKey: "k"}, nil
				}})
			})
			r.blocked(1)
			acked := async(func() (struct{}, error) { return struct{}{}, r.store.Ack(ctx, "", leasesOf(steps[1:])) })
			select {
			case result := <-acked:
				require.NoError(t, result.err)
			case <-time.After(patience):
				t.Error("the ack waits for somebody's open transaction")
			}
			require.NoError(t, tx.Rollback(ctx))
			await(t, finished)
		})
	})

	t.Run("a quorum beyond the steps that a join may have is refused and the transaction stays usable", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		require.NoError(t, r.store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			bad := &roles.Join{Unsealed: true, Policy: roles.JoinQuorum, Quorum: math.MaxInt32 + 1}
			require.ErrorIs(t, r.store.StartJoin(ctx, bad), outmill.ErrInvalidRecord)
			return r.store.StartJoin(ctx, &roles.Join{ExpectedSteps: 1})
		}))
	})

	t.Run("a deadline centuries ahead is far off", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		id := r.startJoin(roles.Join{ExpectedSteps: 1, Deadline: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
		result, err := r.store.FinishJoin(t.Context(), id, roles.FinishRequest{})
		require.NoError(t, err)
		require.Greater(t, result.DeadlineIn, 200*365*24*time.Hour)
	})

	t.Run("a panic in Then continues and leaves the join unchanged", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		id := r.decidedJoin()
		require.PanicsWithError(t, "boom", func() {
			_, _ = r.store.FinishJoin(t.Context(), id,
				roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) { panic(errors.New("boom")) }})
		})
		result, err := r.store.FinishJoin(t.Context(), id, roles.FinishRequest{})
		require.NoError(t, err)
		require.True(t, result.Finished)
	})

	t.Run("a finish that seals the join wakes the others that wait", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		id := r.startJoin(roles.Join{Unsealed: true})
		require.NoError(t, r.store.Append(t.Context(), &outmill.Record{Topic: "waits", WaitsFor: id, Delay: time.Hour}))
		result, err := r.store.FinishJoin(t.Context(), id, roles.FinishRequest{Seal: true})
		require.NoError(t, err)
		require.True(t, result.Finished)
		require.Len(t, r.claimFrom("waits"), 1)
	})

	t.Run("a report after the end leaves the join as it was", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			ctx := t.Context()
			id := r.startJoin(roles.Join{ExpectedSteps: 1})
			step := r.stepsOf(id, "step")[0]
			require.NoError(t, r.store.CancelJoin(ctx, id, "enough"))
			before, err := r.store.GetJoin(ctx, id)
			require.NoError(t, err)
			require.NoError(t, r.store.ReportCompleted(ctx, id, step.ID))
			after, err := r.store.GetJoin(ctx, id)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	})

	t.Run("a record that is being attached keeps its place in its key", func(t *testing.T) {
		t.Parallel()
		for name, order := range map[string]outmill.Order{"key": outmill.OrderKey, "topic": outmill.OrderTopic} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, postgres.LaneRows, storetest.Options{Retain: time.Hour})
				ctx := t.Context()
				first := &outmill.Record{Topic: "orders", Key: "k", MessageID: "first", Delay: time.Minute}
				require.NoError(t, r.store.Append(ctx, first, &outmill.Record{Topic: "orders", Key: "k", MessageID: "second"}))
				passTime(t, r.db, r.schema, time.Hour)
				id := r.startJoin(roles.Join{ExpectedSteps: 1})

				stopped := r.gates.before(t, "INSERT INTO \""+r.schema+"\".\"join_members\"", 1)
				attached := async(func() (struct{}, error) { return struct{}{}, r.gated.AttachStep(ctx, id, first.ID) })
				stopped.wait(t)
				claimed := async(func() ([]*outmill.Record, error) {
					return r.store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, order, "orders"))
				})
				var found []*outmill.Record
				select {
				case result := <-claimed:
					require.NoError(t, result.err)
					found = result.value
					stopped.open()
				case <-time.After(time.Second):
					// It may wait for the attachment.
					stopped.open()
					found = await(t, claimed)
				}
				await(t, attached)
				require.NotEqual(t, []string{"second"}, namesOf(found), "both are due")
			})
		}
	})

	t.Run("an ack that decides no join wakes no reader", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			config := r.store.config
			config.NotifyInterval = -1
			quiet := newStore(t, r.db, config)
			id := r.startJoin(roles.Join{ExpectedSteps: 2})
			r.stepsOf(id, "first", "second")
			steps := r.claimFrom("steps")
			woken := testenv.Hints(t.Context(), quiet)
			require.NoError(t, quiet.Ack(t.Context(), "", leasesOf(steps[:1])))
			require.Empty(t, woken)
			require.NoError(t, quiet.Ack(t.Context(), "", leasesOf(steps[1:])))
			require.Len(t, woken, 1, "this one did")
		})
	})

	t.Run("late attachments among all other calls leave steps that agree with their records", func(t *testing.T) {
		testenv.Long(t, "races with many turns")
		t.Parallel()
		eachLane(t, storetest.Options{Retain: time.Hour}, func(t *testing.T, r *ring) {
			ctx := t.Context()
			joins := []outmill.JoinID{r.startJoin(roles.Join{Unsealed: true}), r.startJoin(roles.Join{Unsealed: true}),
				r.startJoin(roles.Join{Unsealed: true})}
			records := made("orders", "m", 40)
			for i, record := range records {
				if i%3 == 0 {
					record.Joins = joins[:1+i%2]
				}
			}
			require.NoError(t, r.store.Append(ctx, records...))
			stores := []*postgres.Store{r.store.Store, r.gated}
			var workers errgroup.Group
			for i := range 16 {
				workers.Go(func() error {
					owner := outmill.NewOwnerToken()
					for range testenv.Steps(10, 30) {
						if err := anything(ctx, stores[i%2], owner, records, joins); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, workers.Wait())
			for _, id := range joins {
				requireStepsOfRecords(t, r.store.Store, id)
			}
		})
	})

	t.Run("a record is a step however the groups change while it is appended", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			for name, beside := range map[string][]*outmill.Record{"alone": nil, "deduplicated": {{Topic: "others", DedupKey: "key"}}} {
				id := r.startJoin(roles.Join{ExpectedSteps: 1})
				taken := outmill.NewWorkItemID()
				// The append waits for this transaction, with a snapshot from before the
				// group's registration.
				tx := r.begin()
				require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), tx), &outmill.Record{ID: taken, Topic: "steps"}))
				appended := async(func() (any, error) {
					return nil, r.store.Append(t.Context(), append(beside, &outmill.Record{ID: taken, Topic: "steps", Joins: []outmill.JoinID{id}})...)
				})
				r.blocked(1)
				require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: name}))
				require.NoError(t, tx.Rollback(t.Context()))
				await(t, appended)
				steps, err := r.store.ListSteps(t.Context(), id, outmill.WorkItemID{}, 0)
				require.NoError(t, err)
				require.Equal(t, 1, len(steps))
			}
		})
	})
}

// anything makes one of the calls of a worker or an operator.
func anything(ctx context.Context, store *postgres.Store, owner outmill.OwnerToken, records []*outmill.Record,
	joins []outmill.JoinID) error {
	req := claimOf(owner, 1+rand.IntN(4), outmill.OrderKey, "orders")
	req.KeyPolicy = outmill.KeyPark
	found, err := store.Claim(ctx, req)
	if err != nil {
		return err
	}
	one := records[rand.IntN(len(records))].ID
	switch rand.IntN(6) {
	case 0:
		err = store.Ack(ctx, "", leasesOf(found))
	case 1:
		for _, r := range found {
			err = errors.Join(err, store.Fail(ctx, []outmill.Settlement{{Lease: r.Lease(), Park: rand.IntN(2) == 0}}))
		}
	case 2, 3:
		_, err = store.Requeue(ctx, one)
	default:
		err = store.AttachStep(ctx, joins[rand.IntN(len(joins))], one)
	}
	return errors.Join(err, store.Release(ctx, leasesOf(found)))
}

func requireStepsOfRecords(t *testing.T, store *postgres.Store, id outmill.JoinID) {
	t.Helper()
	steps, err := store.ListSteps(t.Context(), id, outmill.WorkItemID{}, 1000)
	require.NoError(t, err)
	require.NotEmpty(t, steps)
	counts := map[roles.StepStatus]int{}
	for _, step := range steps {
		counts[step.Status]++
		record, err := store.Get(t.Context(), step.ID)
		require.NoError(t, err)
		want := map[outmill.Status]roles.StepStatus{outmill.StatusProcessed: roles.StepCompleted,
			outmill.StatusDead: roles.StepFailed}[record.Status]
		require.Equal(t, cmp.Or(want, roles.StepPending), step.Status, "step of %s, which is %s", record.MessageID, record.Status)
	}
	join, err := store.GetJoin(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, [2]int{counts[roles.StepCompleted], counts[roles.StepFailed]}, [2]int{join.CompletedSteps, join.FailedSteps})
}
