package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestKnownRoutes(t *testing.T) {
	t.Parallel()
	t.Run("keep the newest table", func(t *testing.T) {
		t.Parallel()
		var known storekit.KnownRoutes
		require.Nil(t, known.Load())
		newer, older := &storekit.RoutingTable{Generation: 2}, &storekit.RoutingTable{Generation: 1}
		known.Keep(newer)
		known.Keep(older)
		require.Same(t, newer, known.Load())
	})
	t.Run("keep the table of a database that was restored", func(t *testing.T) {
		t.Parallel()
		var known storekit.KnownRoutes
		newer, older := &storekit.RoutingTable{Generation: 2}, &storekit.RoutingTable{Generation: 1}
		known.Renew(nil, newer)
		known.Renew(newer, older)
		require.Same(t, older, known.Load())
		known.Renew(newer, newer)
		require.Same(t, older, known.Load(), "it was known when the call began, and is the result of none")
		known.Renew(nil, newer)
		require.Same(t, newer, known.Load())
	})
	t.Run("forget a table unless another one is known", func(t *testing.T) {
		t.Parallel()
		var known storekit.KnownRoutes
		table, other := &storekit.RoutingTable{Generation: 1}, &storekit.RoutingTable{Generation: 2}
		known.Keep(table)
		known.Forget(other)
		require.Same(t, table, known.Load())
		known.Forget(table)
		require.Nil(t, known.Load())
	})
}
