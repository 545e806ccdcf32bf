package publisher_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/sqlite"
)

func TestPublisher_Concurrency(t *testing.T) {
	t.Parallel()

	t.Run("One publisher serves many goroutines and their transactions", func(t *testing.T) {
		t.Parallel()
		const goroutines, rounds = 16, 12
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		rollback := errors.New("rollback")
		var callers errgroup.Group
		var want []string
		for g := range goroutines {
			name := func(round int, suffix string) string { return fmt.Sprintf("%d/%d%s", g, round, suffix) }
			for round := range rounds {
				if round%3 < 2 {
					want = append(want, name(round, "a"), name(round, "b"))
				}
			}
			callers.Go(func() error {
				for round := range rounds {
					a, b := msg(name(round, "a")), msg(name(round, "b"))
					switch round % 3 {
					case 0:
						if err := pub.Publish(orders, a, b); err != nil {
							return err
						}
					case 1:
						err := store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
							return errors.Join(pub.WithContext(ctx).Publish(orders, a), pub.WithContext(ctx).Publish(orders, b))
						})
						if err != nil {
							return err
						}
					case 2:
						err := store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
							a.SetContext(ctx)
							b.SetContext(ctx)
							return errors.Join(pub.Publish(orders, a, b), rollback)
						})
						if err == nil || !errors.Is(err, rollback) || err.Error() != rollback.Error() {
							return fmt.Errorf("want just a rollback, got %w", err)
						}
					}
				}
				return nil
			})
		}
		require.NoError(t, callers.Wait())
		found := outmilltest.RequireManyPublished(t, store, orders, slices.Repeat([]outmilltest.Matcher{outmilltest.Any()}, len(want))...)
		var got []string
		for _, rec := range found {
			got = append(got, rec.MessageID)
		}
		require.ElementsMatch(t, want, got)
	})

	t.Run("One transaction takes messages from many goroutines", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		tx := begin(t, store)
		ctx := store.WithTx(t.Context(), tx)
		var callers errgroup.Group
		for g := range 16 {
			callers.Go(func() error { return pub.WithContext(ctx).Publish(orders, msg(fmt.Sprint(g))) })
		}
		require.NoError(t, callers.Wait())
		require.NoError(t, tx.Commit())
		outmilltest.RequireManyPublished(t, store, orders, slices.Repeat([]outmilltest.Matcher{outmilltest.Any()}, 16)...)
	})

	t.Run("Close races with publishing", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		accepted := make([]int, 8)
		var callers errgroup.Group
		for g := range accepted {
			callers.Go(func() error {
				for {
					err := pub.Publish(orders, msg(fmt.Sprintf("%d/%d", g, accepted[g])))
					if errors.Is(err, outmill.ErrClosed) {
						return nil
					}
					if err != nil {
						return err
					}
					accepted[g]++
				}
			})
		}
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Greater(c, countOf(store), 20) }, patience, tick)
		require.NoError(t, pub.Close())
		after := countOf(store)
		require.NoError(t, callers.Wait())
		total := 0
		for _, n := range accepted {
			total += n
		}
		require.Equal(t, after, total, "what was published when Close returned is all there is")
		require.Equal(t, total, countOf(store))
	})
}

// countOf returns -1 after an error.
func countOf(store *sqlite.Store) int {
	n := -1
	_ = store.DB().QueryRow("SELECT count(*) FROM outmill_records").Scan(&n)
	return n
}
