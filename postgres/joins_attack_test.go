package postgres_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// stop stops after the nth round trip (from 1) that has the statement. Unlike a gate it does not depend on the next one.
type stop struct {
	text            string
	left            atomic.Int64
	reached, opened chan struct{}
	open            func()
}

type ofStop struct{}

// stopping is a store on the same tables that stops.
func (r *ring) stopping(text string, nth int64) (*postgres.Store, *stop) {
	r.t.Helper()
	s := &stop{text: text, reached: make(chan struct{}), opened: make(chan struct{})}
	s.left.Store(nth)
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

func (s *stop) start(ctx context.Context, has bool) context.Context {
	if has {
		return context.WithValue(ctx, ofStop{}, true)
	}
	return ctx
}

func (s *stop) end(ctx context.Context) {
	if ctx.Value(ofStop{}) != nil && s.left.Add(-1) == 0 {
		close(s.reached)
		<-s.opened
	}
}

func (s *stop) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return s.start(ctx, slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return q.SQL == s.text }))
}

func (s *stop) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { s.end(ctx) }

func (s *stop) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.start(ctx, data.SQL == s.text)
}

func (s *stop) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { s.end(ctx) }

func (*stop) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

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
	stopped := r.gates.beforeStatement(r.t, "insert", 1)
	finished := async(func() (roles.FinishResult, error) {
		return r.gated.FinishJoin(r.t.Context(), id, roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) {
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
		r := newRing(t, storetest.Options{})
		outer := r.startJoin(roles.Join{ExpectedSteps: 1})
		r.finishInto(r.decidedJoin(), outer, func() {
			require.NoError(t, r.store.CancelJoin(t.Context(), outer, "enough"))
		})
	})

	t.Run("a follower is published also if another one takes its place just then", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		outer := r.startJoin(roles.Join{ExpectedSteps: 1})
		r.finishInto(r.decidedJoin(), outer, func() { r.stepsOf(outer, "quicker") })
	})

	t.Run("an append of an id that exists attaches nothing also if the groups have changed", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
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

	t.Run("an ack whose context ends after its commit wakes the waiting records", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		id := r.startJoin(roles.Join{ExpectedSteps: 1})
		r.stepsOf(id, "step")
		waiter := &outmill.Record{Topic: "waits", WaitsFor: id, Delay: time.Hour}
		require.NoError(t, r.store.Append(t.Context(), waiter))
		leases := leasesOf(r.claimFrom("steps"))

		ctx, cancel := context.WithCancel(t.Context())
		// The first commit is that of the leases whose records are no steps.
		store, committed := r.stopping("COMMIT", 2)
		acked := async(func() (struct{}, error) { return struct{}{}, store.Ack(ctx, "", leases) })
		committed.wait(t)
		cancel()
		committed.open()
		await(t, acked)
		require.Len(t, r.claimFrom("waits"), 1, "the ack said that it was done")
	})

	t.Run("a dead record is requeued while it is being attached", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{Retain: time.Hour})
		ctx := t.Context()
		dead := r.append("", "dead")[0]
		require.NoError(t, r.store.Fail(ctx, []outmill.Settlement{{Lease: r.claim(outmill.NewOwnerToken(), 1)[0].Lease()}}))
		id := r.startJoin(roles.Join{ExpectedSteps: 1})

		stopped := r.gates.beforeStatement(t, "attach", 1)
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

	t.Run("a transaction with a followers dedup key that stays open stalls no ack", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
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

	t.Run("a deadline centuries ahead is far off", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		id := r.startJoin(roles.Join{ExpectedSteps: 1, Deadline: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
		result, err := r.store.FinishJoin(t.Context(), id, roles.FinishRequest{})
		require.NoError(t, err)
		require.Greater(t, result.DeadlineIn, 200*365*24*time.Hour)
	})

	t.Run("a panic in Then continues and leaves the join unchanged", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
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
		r := newRing(t, storetest.Options{})
		id := r.startJoin(roles.Join{Unsealed: true})
		require.NoError(t, r.store.Append(t.Context(), &outmill.Record{Topic: "waits", WaitsFor: id, Delay: time.Hour}))
		result, err := r.store.FinishJoin(t.Context(), id, roles.FinishRequest{Seal: true})
		require.NoError(t, err)
		require.True(t, result.Finished)
		require.Len(t, r.claimFrom("waits"), 1)
	})

	t.Run("a record that is being attached keeps its place in its key", func(t *testing.T) {
		t.Parallel()
		for name, of := range map[string]struct {
			order outmill.Order
			delay time.Duration
		}{
			"key": {outmill.OrderKey, time.Minute}, "topic": {outmill.OrderTopic, time.Minute},
			"key in the log": {outmill.OrderKey, 0}, "topic in the log": {outmill.OrderTopic, 0},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{Retain: time.Hour})
				ctx := t.Context()
				first := &outmill.Record{Topic: "orders", Key: "k", MessageID: "first", Delay: of.delay}
				require.NoError(t, r.store.Append(ctx, first, &outmill.Record{Topic: "orders", Key: "k", MessageID: "second"}))
				passTime(t, r.db, r.schema, time.Hour)
				id := r.startJoin(roles.Join{ExpectedSteps: 1})

				stopped := r.gates.beforeStatement(t, "attach", 1)
				attached := async(func() (struct{}, error) { return struct{}{}, r.gated.AttachStep(ctx, id, first.ID) })
				stopped.wait(t)
				claimed := async(func() ([]*outmill.Record, error) {
					return r.store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, of.order, "orders"))
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
		r := newRing(t, storetest.Options{})
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

	t.Run("a record is a step however the groups change while it is appended", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
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
}
