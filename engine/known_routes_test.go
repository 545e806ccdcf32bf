package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestKnownRoutes(t *testing.T) {
	t.Parallel()
	t.Run("keep the newest table", func(t *testing.T) {
		t.Parallel()
		var known knownRoutes
		require.Nil(t, known.load())
		newer, older := &storekit.RoutingTable{Generation: 2}, &storekit.RoutingTable{Generation: 1}
		known.keep(newer)
		known.keep(older)
		require.Same(t, newer, known.load())
	})
	t.Run("keep the table of a database that was restored", func(t *testing.T) {
		t.Parallel()
		var known knownRoutes
		newer, older := &storekit.RoutingTable{Generation: 2}, &storekit.RoutingTable{Generation: 1}
		known.renew(nil, newer)
		known.renew(newer, older)
		require.Same(t, older, known.load())
		known.renew(newer, newer)
		require.Same(t, older, known.load(), "it was known when the call began, and is the result of none")
		known.renew(nil, newer)
		require.Same(t, newer, known.load())
	})
	t.Run("forget a table unless another one is known", func(t *testing.T) {
		t.Parallel()
		var known knownRoutes
		table, other := &storekit.RoutingTable{Generation: 1}, &storekit.RoutingTable{Generation: 2}
		known.keep(table)
		known.forget(other)
		require.Same(t, table, known.load())
		known.forget(table)
		require.Nil(t, known.load())
	})
}
