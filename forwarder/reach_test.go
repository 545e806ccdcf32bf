package forwarder_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/proc"
	"github.com/outmill/outmill/kafka"
)

// pinging is a destination that can be asked.
type pinging struct {
	*batchDestination
	up    atomic.Bool
	asked chan struct{}
}

func newPinging(t *testing.T) *pinging {
	return &pinging{batchDestination: newBatchDestination(t), asked: make(chan struct{}, 1000)}
}

func (p *pinging) Ping(context.Context) error {
	select {
	case p.asked <- struct{}{}:
	default:
	}
	if !p.up.Load() {
		return errAway
	}
	return nil
}

// waiting returns the messages that no group has.
func waiting(t *testing.T, store outmill.Inspector) []string {
	t.Helper()
	var ids []string
	for _, r := range list(t, store, "") {
		if r.Group == "" {
			ids = append(ids, r.MessageID)
		}
	}
	return ids
}

func TestForwarder_Reach(t *testing.T) {
	t.Parallel()

	t.Run("a new group takes what waits only after its destination has answered, and forwards that first", func(t *testing.T) {
		t.Parallel()
		store, dest := newStore(t), newPinging(t)
		add(t, store, recs("orders", "a", 3)...)
		fwd := start(t, store, dest, quick())
		for range 3 {
			<-dest.asked
		}
		add(t, store, rec("orders", "a", "later"))
		require.Equal(t, namesOf("orders", "a", 3), waiting(t, store))
		require.Len(t, list(t, store, ""), 4, "the later one has a record for the group")
		require.True(t, fwd.BreakerOpen())
		require.Zero(t, fwd.ClaimedAt())
		problems := waitForProblems(t, store, func(p map[string]string) bool { return len(p) > 0 })
		require.Regexp(t, `^the destination has not answered since \S+Z: .*connection refused$`, problems[""])
		require.Empty(t, dest.ids())

		dest.up.Store(true)
		requireEmpty(t, store)
		require.Equal(t, append(namesOf("orders", "a", 3), "later"), dest.withKey("a"))
		waitForProblems(t, store, func(p map[string]string) bool { return len(p) == 0 })
		require.False(t, fwd.BreakerOpen())
	})

	t.Run("a trial that does not reach its destination takes nothing", func(t *testing.T) {
		t.Parallel()
		store, dest := newStore(t), newPinging(t)
		add(t, store, recs("invoices", "a", 3)...)
		trial := newForwarder(t, store, dest, quick())
		_, err := trial.Once(t.Context())
		require.ErrorIs(t, err, errAway)
		require.ErrorContains(t, err, "has not answered")
		require.NoError(t, trial.Close())
		dropped, err := store.DropGroup(t.Context(), forwarder.DefaultGroup)
		require.NoError(t, err)
		require.Zero(t, dropped)
		require.Equal(t, namesOf("invoices", "a", 3), waiting(t, store))

		dest.up.Store(true)
		n, err := newForwarder(t, store, dest, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, n)
	})

	t.Run("a group that has taken before goes on without an answer", func(t *testing.T) {
		t.Parallel()
		store, dest := newStore(t), newPinging(t)
		dest.up.Store(true)
		_, err := newForwarder(t, store, dest, quick()).Once(t.Context())
		require.NoError(t, err)
		<-dest.asked
		dest.up.Store(false)
		add(t, store, recs("orders", "a", 3)...)
		start(t, store, dest, quick())
		requireEmpty(t, store)
		require.Equal(t, namesOf("orders", "a", 3), dest.withKey("a"))
		require.Empty(t, dest.asked)
	})

	t.Run("of two forwarders of a group the answer of one is enough", func(t *testing.T) {
		t.Parallel()
		store, unreached := newStore(t), newPinging(t)
		fwd := start(t, store, unreached, quick())
		<-unreached.asked
		reached := newPinging(t)
		reached.up.Store(true)
		_, err := newForwarder(t, store, reached, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !fwd.ClaimedAt().IsZero() }, patience, tick)
		add(t, store, rec("orders", "a", "x"))
		requireEmpty(t, store)
		require.Equal(t, []string{"x"}, unreached.ids())
	})

	t.Run("a destination is asked through decorators", func(t *testing.T) {
		t.Parallel()
		store, dest := newStore(t), newPinging(t)
		add(t, store, recs("orders", "a", 3)...)
		_, err := newForwarder(t, store, unwraps{dest, dest}, quick()).Once(t.Context())
		require.ErrorIs(t, err, errAway)
		require.Len(t, waiting(t, store), 3)
	})

	t.Run("a forwarder that stops before its destination answers leaves what waits", func(t *testing.T) {
		t.Parallel()
		store, dest := newStore(t), newPinging(t)
		add(t, store, recs("orders", "a", 3)...)
		fwd := start(t, store, dest, quick())
		<-dest.asked
		require.NoError(t, fwd.Close())
		require.Len(t, waiting(t, store), 3)
	})

	t.Run("with Kafka down at the first start all arrives once it is up, beside another group", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "billing"}))
		port, err := proc.FreePort()
		require.NoError(t, err)
		address := fmt.Sprint("127.0.0.1:", port)
		pub, err := kafka.NewPublisher(kafka.Config{Brokers: []string{address}, DeliveryTimeout: 2 * time.Second}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, pub.Close()) }()
		fwd := start(t, store, pub, quick())
		require.Eventually(t, fwd.BreakerOpen, patience, tick)
		add(t, store, recs("orders", "", 100)...)
		broker := kafkatest.Fake(t, kfake.Ports(port))
		require.Eventually(t, func() bool {
			left, err := store.List(t.Context(), outmill.ListQuery{Group: forwarder.DefaultGroup, Limit: 1})
			return err == nil && len(left) == 0
		}, patience, tick)
		require.Len(t, kafkatest.ReadAll(t, broker.Addrs, "orders"), 100)
		require.NoError(t, fwd.Close())
	})
}

// unwraps is a decorator that batches may bypass.
type unwraps struct {
	message.Publisher
	inner message.Publisher
}

func (u unwraps) Unwrap() message.Publisher { return u.inner }
