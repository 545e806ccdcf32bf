package publisher_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill/outmilltest"
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
}
