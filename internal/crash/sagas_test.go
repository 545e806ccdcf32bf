//go:build outmill_crash

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
)

// envSagas names the environment variable that makes a child process handle sagas.
const envSagas = "OUTMILL_CRASH_SAGAS"

// A message on placed starts a saga, which publishes an invoice and a timeout. The timeout
// publishes a reminder and ends the saga.
const (
	placed    = "placed"
	overdue   = "overdue"
	reminders = "reminders"
)

// sagaSteps has the steps of a saga within its inbox, in their order. The first five messages
// are starts, and the next five are timeouts.
var sagaSteps = []string{
	"delivered", "begun", "noted", "found", "sent", "reacted", "stored", "handled", "committed",
}

type bill struct {
	Steps int `bson:"steps" json:"steps"`
}

type billed struct{ Order string }

// handleSagas handles the messages of sagas until none is left.
func handleSagas(ctx context.Context, store outmill.Store) error {
	kept, err := sagas.Define(sagas.Config{
		Store: store, Inbox: &inbox.Config{MaxProcessing: time.Second}, KeepFinished: true, ConflictDelay: time.Millisecond,
	},
		sagas.StartedBy(placed, func(m billed) string { return m.Order }, func(c *sagas.Context[bill], m billed) error {
			c.State.Steps++
			if err := c.Timeout(overdue, time.Millisecond, m); err != nil {
				return err
			}
			return c.Publish(invoices, message.NewMessage("invoice of "+m.Order, nil))
		}),
		sagas.Timeout(overdue, func(c *sagas.Context[bill], m billed) error {
			c.State.Steps++
			c.Complete()
			return c.Publish(reminders, message.NewMessage("reminder of "+m.Order, nil))
		}))
	if err != nil {
		return err
	}
	sub, err := subscriber.New(store, subscriber.Config{
		Lease: time.Second, PollInterval: 20 * time.Millisecond, UpkeepInterval: 500 * time.Millisecond,
		Retry: outmill.RetryPolicy{MaxAttempts: -1, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
	}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	if err := kept.AddHandlers(router, sub); err != nil {
		return err
	}
	// A process that stops in the middle of its other subscription has no transaction there any more when it goes on.
	router.AddMiddleware(func(handle message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			<-router.Running()
			return handle(msg)
		}
	})
	go func() {
		defer func() { _ = router.Close() }()
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for ctx.Err() == nil {
			<-look.C
			left := 0
			for _, topic := range []string{placed, overdue} {
				found, err := store.List(ctx, outmill.ListQuery{Content: true, Topic: topic})
				if err != nil {
					return
				}
				left += len(found)
			}
			if left == 0 {
				return
			}
		}
	}()
	return errors.Join(router.Run(ctx), ctx.Err())
}

func TestSagas(t *testing.T) {
	t.Parallel()
	for name, address := range engines {
		for _, step := range append(sagaSteps, "finished") {
			for at, phase := range map[int]string{2: "start", messages + 2: "timeout"} {
				switch {
				case step == "finished" && phase == "start":
					continue
				case step == "finished":
					at = 2
				case step == "sent" && phase == "start":
					at = 4
				case step == "sent":
					at = 2*messages + 2
				}
				t.Run(fmt.Sprint("have each effect once after a crash on ", name, " at the step ", step, " of a ", phase), func(t *testing.T) {
					t.Parallel()
					sagaSurvives(t, address(t), killed(fmt.Sprint(step, ":", at)))
				})
				if phase == "timeout" {
					continue
				}
				t.Run(fmt.Sprint("have each effect once on ", name, " where a process was stopped past its lease at the step ", step),
					func(t *testing.T) {
						t.Parallel()
						sagaSurvives(t, address(t), stopped(fmt.Sprint(step, ":", at), placed, name == "SQLite"))
					})
			}
		}
	}
}

func sagaSurvives(t *testing.T, address string, interrupted interruption) {
	t.Helper()
	store, err := outmill.Open(t.Context(), address, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{placed, overdue}}}))
	var bills, reminded []string
	for i := range messages {
		order := fmt.Sprint("order ", i)
		start := &outmill.Record{Topic: placed, MessageID: order, Payload: fmt.Appendf(nil, `{"Order":%q}`, order)}
		require.NoError(t, store.Append(t.Context(), start))
		bills, reminded = append(bills, "invoice of "+order), append(reminded, "reminder of "+order)
	}
	interrupted(t, store, address, envSagas+"=1")
	for topic, want := range map[string][]string{invoices: bills, reminders: reminded} {
		require.ElementsMatch(t, want, sentTo(t, store, topic))
	}
	states, ok := outmill.As[roles.Sagas](store)
	require.True(t, ok)
	for i := range messages {
		var state bill
		saga, err := states.FindSaga(t.Context(), "bill", fmt.Sprint("order ", i), &state, roles.SagaOptions{})
		require.NoError(t, err)
		require.Equal(t, []any{2, int64(2), true}, []any{state.Steps, saga.Version, saga.Finished})
	}
}

func sentTo(t *testing.T, store outmill.Store, topic string) (ids []string) {
	t.Helper()
	found, err := store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic})
	require.NoError(t, err)
	for _, r := range found {
		ids = append(ids, r.MessageID)
	}
	return ids
}
