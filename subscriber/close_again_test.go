package subscriber_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/subscriber"
)

// farewell is a store that notes that a worker has stopped only after goOn is closed.
type farewell struct {
	*memstore.Store
	noting, goOn chan struct{}
}

func (s *farewell) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if slices.ContainsFunc(regs, func(reg outmill.Registration) bool { return reg.Stopped }) {
		close(s.noting)
		<-s.goOn
	}
	return s.Store.RegisterGroup(ctx, regs...)
}

func TestSubscriber_CloseAgain(t *testing.T) {
	t.Parallel()
	store := &farewell{
		Store:  memstore.New(memstore.NewDatabase(), memstore.Options{}),
		noting: make(chan struct{}), goOn: make(chan struct{}),
	}
	require.NoError(t, store.Ensure(t.Context()))
	cfg := quick()
	cfg.CloseTimeout = 10 * time.Millisecond
	sub, err := subscriber.New(store, cfg, nil)
	require.NoError(t, err)
	messages := subscribe(t, sub)
	require.NoError(t, publisherOf(t, store).Publish(topic, newOrder()))
	running := next(t, messages)
	require.ErrorIs(t, sub.Close(), outmill.ErrHandlersRunning)

	running.Nack()
	<-store.noting
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	select {
	case err := <-closed:
		require.Fail(t, "a Close after the handler has returned waits for the end of its session", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(store.goOn)
	require.NoError(t, <-closed)
	require.NoError(t, store.Close())
}
