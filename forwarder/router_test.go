package forwarder_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func newRouter(t *testing.T) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	return router
}

func runRouter(t *testing.T, router *message.Router) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	return ended
}

func TestForwarder_Router(t *testing.T) {
	t.Parallel()

	t.Run("a router starts and stops the forwarders that were added to it", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		one, two := newDestination(t), newBatchDestination(t)
		cfg := quick()
		first := newForwarder(t, store, one, cfg)
		cfg.Group = "second"
		second := newForwarder(t, store, two, cfg)
		router := newRouter(t)
		require.NoError(t, first.AddToRouter(router, "to one"))
		require.NoError(t, second.AddToRouter(router, "to two"))
		ended := runRouter(t, router)
		<-first.Running()
		<-second.Running()
		add(t, store, recs("orders", "a", 10)...)
		one.requireArrived(t, namesOf("orders", "a", 10)...)
		two.requireArrived(t, namesOf("orders", "a", 10)...)
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
		require.ErrorIs(t, first.Run(t.Context()), outmill.ErrClosed)
		require.ErrorIs(t, second.Run(t.Context()), outmill.ErrClosed)
		add(t, store, rec("orders", "a", "later"))
		require.Len(t, list(t, store, outmill.StatusPending), 2)
		require.Len(t, one.ids(), 10)
	})

	t.Run("a router that closes waits for the publish under way", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "a", "m"))
		g := newGate()
		d := newDestination(t)
		d.judge(func(string, *message.Message) error { g.pass(); return nil })
		fwd := newForwarder(t, store, d, quick())
		router := newRouter(t)
		require.NoError(t, fwd.AddToRouter(router, "forwarder"))
		ended := runRouter(t, router)
		<-g.reached
		go close(g.open)
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
		d.requireArrived(t, "m")
		require.Empty(t, list(t, store, ""))
	})

	t.Run("a router whose context ends stops its forwarders", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		fwd := newForwarder(t, store, newDestination(t), quick())
		router := newRouter(t)
		require.NoError(t, fwd.AddToRouter(router, "forwarder"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- router.Run(ctx) }()
		<-fwd.Running()
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, fwd.Close())
	})

	t.Run("a forwarder that is closed ends its handler and not the others", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		d := newDestination(t)
		cfg := quick()
		one := newForwarder(t, store, newDestination(t), cfg)
		cfg.Group = "second"
		two := newForwarder(t, store, d, cfg)
		router := newRouter(t)
		require.NoError(t, one.AddToRouter(router, "one"))
		require.NoError(t, two.AddToRouter(router, "two"))
		ended := runRouter(t, router)
		<-one.Running()
		require.NoError(t, one.Close())
		add(t, store, rec("orders", "a", "m"))
		d.requireArrived(t, "m")
		require.NoError(t, two.Close())
		require.NoError(t, <-ended, "a router without handlers ends")
	})

	t.Run("a router with a forwarder that cannot begin says why", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "empty.db"), sqlite.Config{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		router := newRouter(t)
		fwd := newForwarder(t, store, newDestination(t), quick())
		require.NoError(t, fwd.AddToRouter(router, "forwarder"))
		require.ErrorIs(t, router.Run(t.Context()), outmill.ErrSchemaMissing)
	})

	t.Run("AddToRouter refuses a nil router and a name that is taken", func(t *testing.T) {
		t.Parallel()
		fwd := newForwarder(t, newStore(t), newDestination(t), quick())
		require.ErrorIs(t, fwd.AddToRouter(nil, "forwarder"), outmill.ErrInvalidConfig)
		require.ErrorIs(t, fwd.AddToRouter(&message.Router{}, "forwarder"), outmill.ErrInvalidConfig)
		router := newRouter(t)
		require.NoError(t, fwd.AddToRouter(router, "forwarder"))
		err := fwd.AddToRouter(router, "forwarder")
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "already exists")
	})

	t.Run("a forwarder may be added to a router that runs", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		d := newDestination(t)
		router := newRouter(t)
		cfg := quick()
		first := newForwarder(t, store, newDestination(t), cfg)
		require.NoError(t, first.AddToRouter(router, "first"))
		ended := runRouter(t, router)
		cfg.Group = "second"
		fwd := newForwarder(t, store, d, cfg)
		require.NoError(t, fwd.AddToRouter(router, "second"))
		require.NoError(t, router.RunHandlers(t.Context()))
		add(t, store, rec("orders", "a", "m"))
		d.requireArrived(t, "m")
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
	})
}
