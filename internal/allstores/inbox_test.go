package allstores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// rollBack rolls back the transaction of ctx without the methods of the store, in the way of its
// driver that the store notices least.
func rollBack(ctx context.Context, store outmill.Writer) error {
	carried, err := store.TxOf(ctx)
	if err != nil {
		return err
	}
	switch tx := carried.(type) {
	case pgx.Tx:
		_, err = tx.Exec(ctx, "ROLLBACK")
	case *sql.Tx:
		_, err = tx.ExecContext(ctx, "ROLLBACK")
	case *driver.Session:
		err = tx.AbortTransaction(ctx)
	default:
		err = fmt.Errorf("the context carries a %T", carried)
	}
	return err
}

func (s site) box(t *testing.T) *inbox.Inbox {
	t.Helper()
	box, err := inbox.New(s.store, inbox.Config{Consumer: "billing"})
	require.NoError(t, err)
	return box
}

// failsOnce is a handler that publishes an effect. In its first run it then calls first.
func (s site) failsOnce(runs *atomic.Int32, first func(msg *message.Message) error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		n := runs.Add(1)
		if err := s.pub.WithContext(msg.Context()).Publish("effects", message.NewMessage(fmt.Sprint("effect of run ", n), nil)); err != nil {
			return nil, err
		}
		if n == 1 {
			return nil, first(msg)
		}
		return nil, nil
	}
}

// requireHandledAgain waits until the message is gone, and checks that its second run took effect.
func (s site) requireHandledAgain(t *testing.T, runs *atomic.Int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := s.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: "orders"})
		require.NoError(t, err)
		return len(left) == 0
	}, patience, 5*time.Millisecond)
	require.EqualValues(t, 2, runs.Load(), "runs of the handler")
	s.requireEffect(t)
}

func (s site) requireEffect(t *testing.T) {
	t.Helper()
	effects, err := s.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: "effects"})
	require.NoError(t, err)
	require.Len(t, effects, 1)
	require.Equal(t, "effect of run 2", effects[0].MessageID)
}

func TestInbox(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, first := range map[string]func(s site) func(msg *message.Message) error{
		"acks its message and then fails": func(site) func(msg *message.Message) error {
			return func(msg *message.Message) error {
				require.True(t, msg.Ack())
				return boom
			}
		},
		"rolls its transaction back, and says nothing": func(s site) func(msg *message.Message) error {
			return func(msg *message.Message) error { return rollBack(msg.Context(), s.store) }
		},
	} {
		t.Run("a message comes again whose handler "+name, func(t *testing.T) {
			t.Parallel()
			onEachStore(t, func(t *testing.T, s site) {
				var runs atomic.Int32
				router := newRouter(t)
				router.AddMiddleware(subscriber.KeepError, s.box(t).Middleware)
				router.AddConsumerHandler("billing", "orders", s.subscriber(t, "billing"), func(msg *message.Message) error {
					_, err := s.failsOnce(&runs, first(s))(msg)
					return err
				})
				run(t, router)
				require.NoError(t, s.pub.Publish("orders", message.NewMessage("m1", nil)))
				s.requireHandledAgain(t, &runs)
			})
		})
		t.Run("a message of another subscriber is nacked whose handler "+name, func(t *testing.T) {
			t.Parallel()
			onEachStore(t, func(t *testing.T, s site) {
				var runs atomic.Int32
				handle := s.box(t).Middleware(s.failsOnce(&runs, first(s)))
				msg := message.NewMessage("m1", nil)
				_, err := handle(msg)
				require.Error(t, err)
				require.True(t, msg.Nack(), "the handler has acked the message of the subscriber")
				_, err = handle(message.NewMessage("m1", nil))
				require.NoError(t, err)
				require.EqualValues(t, 2, runs.Load())
				s.requireEffect(t)
			})
		})
	}
}

func TestSet_TxOf(t *testing.T) {
	t.Parallel()
	t.Run("the transaction of a set can be used before the set's first call in it", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			set := openSet(t, tenants.Config{Discovery: tenants.Static{{Key: "a", Store: s.store}}, DefaultTenant: "a"}, 1)
			for _, transactor := range []interface {
				outmill.Writer
				roles.Transactor
			}{set, s.store.(interface {
				outmill.Writer
				roles.Transactor
			})} {
				err := transactor.Transact(t.Context(), func(ctx context.Context) error { return rollBack(ctx, transactor) })
				require.ErrorIs(t, err, outmill.ErrInvalidTx)
				require.NoError(t, transactor.Transact(t.Context(), func(ctx context.Context) error {
					carried, err := transactor.TxOf(ctx)
					require.NoError(t, err)
					if tx, ok := carried.(pgx.Tx); ok {
						_, err = tx.Exec(ctx, "SELECT 1")
						require.NoError(t, err)
					}
					return transactor.Append(ctx, &outmill.Record{Topic: "orders"})
				}))
			}
			found, err := s.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: "orders"})
			require.NoError(t, err)
			require.Len(t, found, 2)
		})
	})
}
