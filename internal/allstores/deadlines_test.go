package allstores_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// timed is a store that refuses calls that have no deadline.
type timed struct {
	*sqlite.Store
	mu    sync.Mutex
	seen  map[string]bool
	wrong map[string]bool
}

func (s *timed) check(ctx context.Context, call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[call] = true
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 2*time.Minute {
		s.wrong[call] = true
	}
}

func (s *timed) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	s.check(ctx, "RegisterGroup")
	return s.Store.RegisterGroup(ctx, regs...)
}

func (s *timed) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	s.check(ctx, "Claim")
	return s.Store.Claim(ctx, req)
}

func (s *timed) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	s.check(ctx, "Extend")
	return s.Store.Extend(ctx, lease, leases)
}

func (s *timed) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	s.check(ctx, "Ack")
	return s.Store.Ack(ctx, by, leases)
}

func (s *timed) Abandon(ctx context.Context, list []outmill.Settlement) error {
	s.check(ctx, "Abandon")
	return s.Store.Abandon(ctx, list)
}

func (s *timed) Snooze(ctx context.Context, list []outmill.Settlement) error {
	s.check(ctx, "Snooze")
	return s.Store.Snooze(ctx, list)
}

func (s *timed) Fail(ctx context.Context, list []outmill.Settlement) error {
	s.check(ctx, "Fail")
	return s.Store.Fail(ctx, list)
}

// AreIdle has the janitor do its chores.
func (s *timed) AreIdle(context.Context, []any) ([]bool, error) { return []bool{false}, nil }

func (s *timed) ReapExpired(ctx context.Context, limit int) (int, error) {
	s.check(ctx, "ReapExpired")
	return s.Store.ReapExpired(ctx, limit)
}

func (s *timed) Maintain(ctx context.Context) (bool, error) {
	s.check(ctx, "Maintain")
	return s.Store.Maintain(ctx)
}

func (s *timed) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	s.check(ctx, "Stats")
	return s.Store.Stats(ctx, limit)
}

var everyCall = []string{"Abandon", "Ack", "Claim", "Extend", "Fail", "Maintain", "ReapExpired", "RegisterGroup", "Snooze"}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	t.Run("each call of a subscriber, a forwarder and their janitors has a deadline", func(t *testing.T) {
		t.Parallel()
		inner, err := sqlite.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, inner.Close()) })
		store := &timed{Store: inner, seen: map[string]bool{}, wrong: map[string]bool{}}

		sub, err := subscriber.New(store, subscriber.Config{
			Lease: 100 * time.Millisecond, UpkeepInterval: 20 * time.Millisecond,
			Retry: outmill.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		require.NoError(t, err)
		router.AddMiddleware(subscriber.KeepError)
		outcomes := []error{nil, errors.New("boom"), outmill.Permanent(errors.New("never")), outmill.Snooze(time.Millisecond)}
		var turn int
		var mu sync.Mutex
		router.AddConsumerHandler("h", "orders", sub, func(msg *message.Message) error {
			mu.Lock()
			outcome := outcomes[turn%len(outcomes)]
			turn++
			mu.Unlock()
			<-time.After(150 * time.Millisecond)
			return outcome
		})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		go func() { ended <- router.Run(ctx) }()
		<-router.Running()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ended)
		})

		broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, nil)
		fwd, err := forwarder.New(store, broker, forwarder.Config{
			Topics: outmill.Topics{Include: []string{"news"}}, UpkeepInterval: 20 * time.Millisecond,
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, fwd.Close()) })
		go func() { _ = fwd.Run(ctx) }()

		for range 8 {
			require.NoError(t, store.Append(t.Context(),
				&outmill.Record{MessageID: "m", Topic: "orders"}, &outmill.Record{MessageID: "m", Topic: "news"}))
		}
		called := func() []string {
			store.mu.Lock()
			defer store.mu.Unlock()
			return slices.Sorted(maps.Keys(store.seen))
		}
		require.Eventually(t, func() bool {
			seen := called()
			return !slices.ContainsFunc(everyCall, func(call string) bool { return !slices.Contains(seen, call) })
		}, time.Minute, 5*time.Millisecond, "not every call was made: %v", called())
		store.mu.Lock()
		defer store.mu.Unlock()
		require.Empty(t, store.wrong, "calls without a deadline within two minutes")
	})
}
