package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// missesMoves counts as a store whose Stats is not of one moment: a record that moves is in none
// of the counts.
type missesMoves struct{ mutants.File }

func (missesMoves) Stats(context.Context, int) ([]outmill.TopicStats, error) { return nil, nil }

func TestCountOf(t *testing.T) {
	t.Parallel()
	t.Run("a record that Stats misses because it moves is counted", func(t *testing.T) {
		t.Parallel()
		engine := mutants.InFile(func(f mutants.File) outmill.Store { return missesMoves{f} })
		e := &env{suite.NewEnv(t, engine, suite.Modes()[1].Options)}
		count := func(statuses ...outmill.Status) int {
			n, err := countOf(e.Ctx, e.Store, statuses...)
			require.NoError(t, err)
			return n
		}
		e.Filled(suite.Rec(orders, "acked"), suite.Rec(orders, "failed"))
		require.Equal(t, 2, count(outmill.StatusPending, outmill.StatusLeased))
		found := e.ClaimNamed(outmill.NewOwnerToken())
		require.Equal(t, 2, count(outmill.StatusPending, outmill.StatusLeased))
		require.NoError(t, e.Store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{found["acked"]})))
		require.Equal(t, 1, count(outmill.StatusPending, outmill.StatusLeased))
		require.NoError(t, e.Store.Fail(e.Ctx, suite.Failures(false, "bad", suite.Leases([]*outmill.Record{found["failed"]}))))
		require.Zero(t, count(outmill.StatusPending, outmill.StatusLeased))
		require.Equal(t, 1, count(outmill.StatusPending, outmill.StatusLeased, outmill.StatusDead))
	})
}
