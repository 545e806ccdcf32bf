package allstores

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// doubtful is a store that loses the answer to its next commit. That the stores themselves tell
// such a loss as ErrCommitInDoubt is a sentence of txtest.
type doubtful struct {
	outmill.Store
	roles.Transactor
	loses atomic.Bool
}

func newDoubtful(t *testing.T, store outmill.Store) *doubtful {
	t.Helper()
	transactor, ok := outmill.As[roles.Transactor](store)
	require.True(t, ok)
	f := &doubtful{Store: store, Transactor: transactor}
	f.loses.Store(true)
	return f
}

func (f *doubtful) Unwrap() outmill.Store { return f.Store }

func (f *doubtful) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	err := f.Transactor.Transact(ctx, fn)
	if err == nil && f.loses.CompareAndSwap(true, false) {
		return storekit.CommitInDoubt(errors.New("the connection was lost"))
	}
	return err
}

// hasty is a subscriber with one attempt, which parks the keys of what fails.
func (s site) hasty(t *testing.T) *subscriber.Subscriber {
	t.Helper()
	cfg := quick()
	cfg.Retry.MaxAttempts, cfg.Order, cfg.KeyPolicy = 1, outmill.OrderKey, outmill.KeyPark
	sub, err := subscriber.New(s.store, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

func keyed(uuid string) *message.Message {
	msg := message.NewMessage(uuid, []byte(`{"Order":"o1"}`))
	outmill.SetKey(msg, "k")
	return msg
}

func TestInbox_CommitInDoubt(t *testing.T) {
	t.Parallel()
	for name, middleware := range map[string]message.HandlerMiddleware{
		"with KeepError":    subscriber.KeepError,
		"without KeepError": func(h message.HandlerFunc) message.HandlerFunc { return h },
	} {
		t.Run("a lost answer to the commit of the last attempt fails neither the message nor its key nor its join, "+name, func(t *testing.T) {
			t.Parallel()
			onEachStore(t, func(t *testing.T, s site) {
				box, err := inbox.New(newDoubtful(t, s.store), inbox.Config{Consumer: "billing"})
				require.NoError(t, err)
				router := newRouter(t)
				router.AddMiddleware(middleware, box.Middleware)
				router.AddConsumerHandler("billing", "orders", s.hasty(t), func(msg *message.Message) error {
					return s.pub.WithContext(msg.Context()).Publish("effects", message.NewMessage("effect of "+msg.UUID, nil))
				})
				run(t, router)
				of, ok := outmill.As[roles.Joins](s.store)
				require.True(t, ok)
				join := &roles.Join{ExpectedSteps: 1}
				require.NoError(t, of.StartJoin(t.Context(), join))
				first := keyed("m1")
				joins.AddStep(first, join.ID)
				require.NoError(t, s.pub.Publish("orders", first, keyed("m2")))
				s.requireNoneLeft(t, "orders")
				s.requireUUIDs(t, "effects", "effect of m1", "effect of m2")
				ended, err := of.GetJoin(t.Context(), join.ID)
				require.NoError(t, err)
				require.Equal(t, []int{1, 0}, []int{ended.CompletedSteps, ended.FailedSteps})
			})
		})
	}
}

func TestSagas_CommitInDoubt(t *testing.T) {
	t.Parallel()
	t.Run("a lost answer to the commit of the last attempt changes a saga once", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			k := keeper{site{newDoubtful(t, s.store), s.pub}, nil}
			k.start(t, sagas.Config{Inbox: &inbox.Config{}}, s.hasty(t), sagas.StartedBy("paid", ofParcel,
				func(c *sagas.Context[parcel], m parcelEvent) error {
					c.State.Steps++
					return c.PublishValue("effects", m)
				}))
			require.NoError(t, s.pub.Publish("paid", keyed("m1"), keyed("m2")))
			s.requireNoneLeft(t, "paid")
			found, ok := outmill.As[roles.Sagas](s.store)
			require.True(t, ok)
			var state parcel
			_, err := found.FindSaga(t.Context(), "parcel", "o1", &state, roles.SagaOptions{})
			require.NoError(t, err)
			require.Equal(t, 2, state.Steps)
			effects, err := s.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: "effects"})
			require.NoError(t, err)
			require.Len(t, effects, 2)
		})
	})
}

// requireNoneLeft waits until all records of the topic are acked.
func (s site) requireNoneLeft(t *testing.T, topic string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := s.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic})
		require.NoError(t, err)
		return len(left) == 0
	}, patience, 10*time.Millisecond)
}

func (s site) requireUUIDs(t *testing.T, topic string, want ...string) {
	t.Helper()
	found, err := s.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic})
	require.NoError(t, err)
	var got []string
	for _, r := range found {
		got = append(got, r.MessageID)
	}
	require.ElementsMatch(t, want, got)
}
