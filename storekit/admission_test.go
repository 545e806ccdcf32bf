package storekit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// handlers is a Transactor whose transactions take their connections from a pool.
type handlers struct {
	storekit.Admission
	limit, told int
}

func (h *handlers) TxLimit() time.Duration { return 0 }

func (h *handlers) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	return h.Run(ctx, h.limit, func() { h.told++ }, func() error { return fn(ctx) })
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	t.Run("leaves one connection of a pool, except of a pool of one", func(t *testing.T) {
		t.Parallel()
		for connections, want := range map[int]int{0: 0, 1: 1, 2: 1, 4: 3, 100: 99} {
			require.Equal(t, want, storekit.HandlersOf(connections))
		}
	})
	t.Run("admits handlers in their order, and tells of the first one that waits and of long waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := &handlers{limit: 2}
			begun := make(chan int, 6)
			done := make(chan error, 6)
			for i := range 6 {
				go func() {
					done <- storekit.TransactPatiently(t.Context(), h, func(context.Context) error {
						begun <- i
						<-time.After(time.Second + time.Duration(i)*time.Millisecond)
						return nil
					})
				}()
				synctest.Wait()
			}
			var now roles.Examination
			<-time.After(1500 * time.Millisecond)
			h.Examine(&now, h.limit, "More")
			require.Equal(t, "pool_small", now.Findings[0].Code)
			require.Contains(t, now.Findings[0].Text, "2 wait now")
			for range 6 {
				require.NoError(t, <-done)
			}
			for i := range 6 {
				require.Equal(t, i, <-begun)
			}
			require.Equal(t, 1, h.told)
			<-time.After(time.Hour)
			var later roles.Examination
			h.Examine(&later, h.limit, "More")
			require.Empty(t, later.Findings)
		})
	})
	t.Run("a handler that gives up leaves its place to the next one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := &handlers{limit: 1}
			end := make(chan struct{})
			ended := make(chan error, 3)
			ctx, cancel := context.WithCancel(t.Context())
			run := func(ctx context.Context) {
				ended <- storekit.TransactPatiently(ctx, h, func(context.Context) error {
					<-end
					return nil
				})
			}
			for _, ctx := range []context.Context{t.Context(), ctx, t.Context()} {
				go run(ctx)
				synctest.Wait()
			}
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			close(end)
			require.NoError(t, <-ended)
			require.NoError(t, <-ended)
		})
	})
	t.Run("a transaction of the user's own does not wait for handlers", func(t *testing.T) {
		t.Parallel()
		h := &handlers{limit: 1}
		require.NoError(t, storekit.TransactPatiently(t.Context(), h, func(ctx context.Context) error {
			return h.Transact(ctx, func(context.Context) error { return nil })
		}))
		require.Zero(t, h.told)
	})
}
