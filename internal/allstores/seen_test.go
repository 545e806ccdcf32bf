package allstores

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/subscriber"
)

// problemsOf are the problems of the kind that doctor finds.
func problemsOf(t *testing.T, store outmill.Store, kind string, cfg monitor.DoctorConfig) []monitor.Problem {
	t.Helper()
	report, err := monitor.Doctor(t.Context(), store, cfg)
	require.NoError(t, err)
	return slices.DeleteFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind != kind })
}

func TestDoctor_Stopped(t *testing.T) {
	t.Parallel()
	worker := func(t *testing.T, store outmill.Store) *subscriber.Subscriber {
		t.Helper()
		sub, err := subscriber.New(store, quick(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		return sub
	}
	subscribe := func(t *testing.T, sub *subscriber.Subscriber, topic string) (<-chan *message.Message, func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		messages, err := sub.Subscribe(ctx, topic)
		require.NoError(t, err)
		return messages, func() {
			cancel()
			_, open := <-messages
			require.False(t, open)
		}
	}

	t.Run("doctor names a group at once whose last subscriber has stopped, and not before", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, store outmill.Store) {
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
			sub, other := worker(t, store), worker(t, store)
			_, stopA := subscribe(t, sub, "a")
			_, stopB := subscribe(t, sub, "b")
			_, stopC := subscribe(t, other, "c")
			unseen := func() []monitor.Problem { return problemsOf(t, store, "group_unseen", monitor.DoctorConfig{}) }
			stopA()
			require.Empty(t, unseen())
			stopB()
			require.Empty(t, unseen(), "another subscriber of the process reads")
			stopC()
			require.Len(t, unseen(), 1)
			require.Contains(t, unseen()[0].Text, "stopped at")

			_, stop := subscribe(t, sub, "a")
			require.Empty(t, unseen(), "it reads again")
			stop()
			require.Len(t, unseen(), 1)
		})
	})

	t.Run("doctor names a group at once whose forwarder has stopped, and not after Once", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, store outmill.Store) {
			unseen := func() []monitor.Problem { return problemsOf(t, store, "group_unseen", monitor.DoctorConfig{}) }
			newForwarder := func() *forwarder.Forwarder {
				f, err := forwarder.New(store, &nowhere{}, forwarder.Config{}, nil)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, f.Close()) })
				return f
			}
			_, err := newForwarder().Once(t.Context())
			require.NoError(t, err)
			require.Empty(t, unseen(), "the next Once may come soon")
			f := newForwarder()
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			<-f.Running()
			require.Empty(t, unseen())
			cancel()
			require.NoError(t, <-ended)
			require.Len(t, unseen(), 1)
			require.Equal(t, "forwarder", unseen()[0].Group)
		})
	})

	t.Run("a closing store still learns that its subscriber has stopped", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			noting := &stopNoter{Store: s.store}
			subscribe(t, worker(t, noting), "a")
			require.NoError(t, s.store.Close())
			require.Equal(t, int32(1), noting.stops.Load())
		})
	})
}

func TestDoctor_HangingHandler(t *testing.T) {
	t.Parallel()
	t.Run("doctor and why name a handler that hangs, until it returns", func(t *testing.T) {
		t.Parallel()
		onEachStoreAndMemory(t, func(t *testing.T, store outmill.Store) {
			cfg := quick()
			cfg.Lease, cfg.UpkeepInterval, cfg.Worker = 3*time.Second, 20*time.Millisecond, "host:7"
			sub, err := subscriber.New(store, cfg, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, sub.Close()) })
			messages, err := sub.Subscribe(t.Context(), "orders")
			require.NoError(t, err)
			record := &outmill.Record{Topic: "orders"}
			require.NoError(t, store.Append(t.Context(), record))
			msg := <-messages
			defer msg.Ack()
			hanging := func() []monitor.Problem {
				return problemsOf(t, store, "handler_hangs", monitor.DoctorConfig{MaxHandling: time.Millisecond})
			}
			var found []monitor.Problem
			require.Eventually(t, func() bool { found = hanging(); return len(found) == 1 }, patience, 20*time.Millisecond)
			p := found[0]
			require.Equal(t, []string{outmill.DefaultGroup, "orders", "host:7"}, []string{p.Group, p.Topic, p.Subject})
			require.Contains(t, p.Text, record.ID.String())
			answer, err := monitor.Why(t.Context(), store, record.ID.String(), monitor.WhyConfig{})
			require.NoError(t, err)
			require.Len(t, answer.Explanations, 1)
			require.True(t, slices.ContainsFunc(answer.Explanations[0].Reasons, func(r monitor.Reason) bool { return r.Kind == "handler_runs" }),
				"%+v", answer.Explanations[0].Reasons)
			msg.Ack()
			require.Eventually(t, func() bool { return len(hanging()) == 0 }, patience, 20*time.Millisecond)
		})
	})
}

// stopNoter counts the workers of which the store has heard that they have stopped.
type stopNoter struct {
	outmill.Store
	stops atomic.Int32
}

func (s *stopNoter) Unwrap() outmill.Store { return s.Store }

func (s *stopNoter) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	err := s.Store.RegisterGroup(ctx, regs...)
	if err == nil && slices.ContainsFunc(regs, func(r outmill.Registration) bool { return r.Stopped }) {
		s.stops.Add(1)
	}
	return err
}

// nowhere takes every message.
type nowhere struct{}

func (*nowhere) Publish(string, ...*message.Message) error { return nil }
func (*nowhere) Close() error                              { return nil }
