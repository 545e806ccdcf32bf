package joins_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

var errRollBack = errors.New("roll back")

func TestWait(t *testing.T) {
	t.Parallel()

	t.Run("a job that rolls back never existed", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t)
		err := p.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			id := start(t, ctx, p.Store, of(3))
			p.publishSteps(t, ctx, id, good, good, good)
			require.NoError(t, joins.Wait(ctx, p.pub, waitFor(id)))
			return errRollBack
		})
		require.ErrorIs(t, err, errRollBack)
		require.Empty(t, p.records(t, "", ""))
		found, err := p.ListJoins(t.Context(), roles.JoinQuery{})
		require.NoError(t, err)
		require.Empty(t, found)

		// The next join ends as usual.
		id := p.etl(t, of(1), nil, good)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed, failed)
	})

	t.Run("a wait that rolls back ends nothing and the next one does", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		id := start(t, t.Context(), p.Store, of(1))
		p.publishSteps(t, t.Context(), id, good)
		err := p.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, joins.Wait(ctx, p.pub, waitFor(id)))
			return errRollBack
		})
		require.ErrorIs(t, err, errRollBack)
		p.requireSettled(t, completed)
		require.Equal(t, roles.JoinPending, p.join(t, id).Status)
		require.Equal(t, 1, p.join(t, id).CompletedSteps)

		// All steps have been handled already.
		p.inTx(t, func(ctx context.Context) { require.NoError(t, joins.Wait(ctx, p.pub, waitFor(id))) })
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
	})

	t.Run("start steps and wait may be in transactions of their own", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		id := start(t, t.Context(), p.Store, of(3))
		require.NoError(t, joins.Wait(t.Context(), p.pub, waitFor(id)))
		for range 3 {
			p.publishSteps(t, t.Context(), id, good)
		}
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "3", "3", "0")
		p.requireSettled(t, completed)
	})

	t.Run("a nil payload of what follows stays nil, and no message is an empty one", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		for name, c := range map[string]struct{ message, want *message.Message }{
			"nil":        {message.NewMessage("", nil), message.NewMessage("", nil)},
			"empty":      {message.NewMessage("", message.Payload{}), message.NewMessage("", message.Payload{})},
			"no message": {nil, message.NewMessage("", message.Payload{})},
		} {
			id := start(t, t.Context(), p.Store, of(1))
			p.publishSteps(t, t.Context(), id, good)
			require.NoError(t, joins.Wait(t.Context(), p.pub, joins.WaitRequest{Join: id,
				OnComplete: joins.Next{Topic: transform, Message: c.message}}))
			require.Equal(t, c.want.Payload, receive(t, completed).Payload, name)
		}
		p.requireSettled(t, completed)
	})

	t.Run("the publisher may carry the transaction itself", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		id := start(t, t.Context(), p.Store, of(1))
		err := p.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, joins.Wait(context.WithoutCancel(t.Context()), p.pub.WithContext(ctx), waitFor(id)))
			return errRollBack
		})
		require.ErrorIs(t, err, errRollBack)
		require.Empty(t, p.records(t, "", ""))
	})

	t.Run("a wait that makes no sense is refused and the transaction stays usable", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		id := start(t, t.Context(), p.Store, of(1))
		with := func(change func(*joins.WaitRequest)) joins.WaitRequest {
			wait := waitFor(id)
			change(&wait)
			return wait
		}
		saying := func(change func(*message.Message)) joins.WaitRequest {
			return with(func(wait *joins.WaitRequest) { change(wait.OnFail.Message) })
		}
		for name, c := range map[string]struct {
			wait  joins.WaitRequest
			field string
		}{
			"no join":                   {with(func(w *joins.WaitRequest) { w.Join = outmill.JoinID{} }), "join"},
			"no topics":                 {joins.WaitRequest{Join: id}, "topic"},
			"a message without a topic": {with(func(w *joins.WaitRequest) { w.OnComplete.Topic = "" }), "OnComplete topic"},
			"a topic that is too long": {with(func(w *joins.WaitRequest) { w.OnComplete.Topic = strings.Repeat("x", 256) }),
				"OnComplete topic"},
			"a topic with a blank":        {with(func(w *joins.WaitRequest) { w.OnFail.Topic = " x" }), "OnFail topic"},
			"a topic alone, with a blank": {joins.WaitRequest{Join: id, OnFail: joins.Next{Topic: "x "}}, "OnFail topic"},
			"a key that is too long":      {saying(func(m *message.Message) { outmill.SetKey(m, strings.Repeat("x", 256)) }), "OnFail key"},
			"a due time that is none": {saying(func(m *message.Message) { outmill.SetDueAt(m, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) }),
				"OnFail metadata \"outmill_due_at\""},
			"metadata that is no text":  {saying(func(m *message.Message) { m.Metadata.Set("name", "\xff") }), "OnFail metadata \"name\""},
			"a step of the join itself": {saying(func(m *message.Message) { joins.AddStep(m, id) }), "OnFail joins"},
			"a step of the zero join":   {saying(func(m *message.Message) { joins.AddStep(m, outmill.JoinID{}) }), "OnFail joins"},
			"fewer steps than none":     {with(func(w *joins.WaitRequest) { w.Seal, w.ExpectedSteps = true, -1 }), "expected steps"},
			"too many steps": {with(func(w *joins.WaitRequest) { w.Seal, w.ExpectedSteps = true, roles.MaxJoinSteps+1 }),
				"expected steps"},
			"a number of steps, no sealing": {with(func(w *joins.WaitRequest) { w.ExpectedSteps = 3 }), "expected steps"},
		} {
			p.inTx(t, func(ctx context.Context) {
				err := joins.Wait(ctx, p.pub, c.wait)
				require.ErrorIs(t, err, outmill.ErrInvalidRecord, name)
				var invalid *outmill.InvalidRecordError
				require.ErrorAs(t, err, &invalid, name)
				require.Equal(t, c.field, invalid.Field, name)
				require.Equal(t, -1, invalid.Index, name)
			})
		}
		require.Empty(t, p.records(t, "", ""))

		p.inTx(t, func(ctx context.Context) {
			require.Error(t, joins.Wait(ctx, p.pub, joins.WaitRequest{}))
			require.NoError(t, joins.Wait(ctx, p.pub, waitFor(id)))
			p.publishSteps(t, ctx, id, good)
		})
		receive(t, completed)
		p.requireSettled(t, completed)
	})

	t.Run("all that is wrong with a wait is said at once", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		err := joins.Wait(t.Context(), p.pub, joins.WaitRequest{OnComplete: joins.Next{Topic: " "}, OnFail: joins.Next{Topic: " "}})
		for _, want := range []string{"join is zero", "OnComplete topic", "OnFail topic"} {
			require.ErrorContains(t, err, want)
		}
	})

	t.Run("steps that a join refuses are errors and the transaction stays usable", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		full := start(t, t.Context(), p.Store, of(1))
		cancelled := start(t, t.Context(), p.Store, of(1))
		require.NoError(t, p.CancelJoin(t.Context(), cancelled, ""))
		p.inTx(t, func(ctx context.Context) {
			p.publishSteps(t, ctx, full, good)
			for want, id := range map[error]outmill.JoinID{
				roles.ErrTooManySteps: full,
				roles.ErrJoinFinished: cancelled,
				roles.ErrUnknownJoin:  outmill.NewJoinID(),
			} {
				require.ErrorIs(t, p.pub.WithContext(ctx).Publish(extracts[0], step(good, id)), want)
			}
			require.NoError(t, joins.Wait(ctx, p.pub, waitFor(full)))
		})
		requireJoinOf(t, receive(t, completed), full, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
	})

	t.Run("a join that makes no sense is not started", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		for _, join := range []roles.Join{{}, {ExpectedSteps: -1}, {ExpectedSteps: 1, Policy: "most"}} {
			id, err := joins.Start(t.Context(), p.Store, join)
			require.ErrorIs(t, err, outmill.ErrInvalidRecord)
			require.True(t, id.IsZero())
		}
		chosen := outmill.NewJoinID()
		join := of(1)
		join.ID = chosen
		require.Equal(t, chosen, start(t, t.Context(), p.Store, join))
		_, err := joins.Start(t.Context(), p.Store, join)
		require.ErrorIs(t, err, roles.ErrJoinExists)
		_, err = joins.Start(t.Context(), newStore(t), of(1))
		require.NoError(t, err)
		other := newStore(t)
		require.NoError(t, other.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			_, err := joins.Start(ctx, p.Store, of(1))
			require.ErrorIs(t, err, outmill.ErrForeignTx)
			require.ErrorIs(t, joins.Wait(ctx, p.pub, waitFor(chosen)), outmill.ErrForeignTx)
			return nil
		}))
	})

	t.Run("nil stores and publishers are refused", func(t *testing.T) {
		t.Parallel()
		for _, store := range []roles.Joins{nil, (*sqlite.Store)(nil)} {
			_, err := joins.Start(t.Context(), store, of(1))
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
		for _, pub := range []message.Publisher{nil, (*publisher.Publisher)(nil)} {
			require.ErrorIs(t, joins.Wait(t.Context(), pub, waitFor(outmill.NewJoinID())), outmill.ErrInvalidConfig)
		}
	})

	t.Run("a publisher that requires a transaction gets it from the context", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		strict, err := publisher.New(p.Store, publisher.Config{RequireTx: true}, nil)
		require.NoError(t, err)
		id := start(t, t.Context(), p.Store, of(1))
		require.ErrorIs(t, joins.Wait(t.Context(), strict, waitFor(id)), outmill.ErrNoTx)
		p.inTx(t, func(ctx context.Context) { require.NoError(t, joins.Wait(ctx, strict, waitFor(id))) })
		require.Len(t, p.records(t, joins.Topic, outmill.StatusPending), 1)
	})
}
