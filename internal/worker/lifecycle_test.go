package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()

	t.Run("a worker ends at any moment", func(t *testing.T) {
		t.Parallel()

		t.Run("before it was started, and then it does not start", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			w := worker.New(config(r.store))
			w.Stop()
			require.NoError(t, w.Close(t.Context()))
			w.Start(t.Context())
			_, err := w.Take(t.Context(), 1)
			require.ErrorIs(t, err, outmill.ErrClosed)
			require.Zero(t, r.get(rec).Claims)
		})

		t.Run("with Close alone", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			w := worker.New(config(r.store))
			w.Start(t.Context())
			r.take(w).Ack()
			require.NoError(t, w.Close(t.Context()))
			require.Nil(t, r.get(rec), "what was settled before Close is stored")
		})

		t.Run("several times and by several goroutines", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			w := worker.New(config(r.store))
			w.Start(t.Context())
			r.take(w).Ack()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(w.Stop)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), soon)
					defer cancel()
					if err := w.Close(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.Nil(t, r.get(rec))
		})

		t.Run("with a context that had ended before the start", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			w := worker.New(config(r.store))
			w.Start(ended)
			_, err := w.Take(ended, 1)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, w.Close(t.Context()))
			require.Zero(t, r.get(rec).Claims)
		})

		t.Run("while a caller waits in Take", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.start(nil)
			end := make(chan error)
			go func() {
				_, err := w.Take(context.Background(), 1)
				end <- err
			}()
			w.Stop()
			require.ErrorIs(t, <-end, outmill.ErrClosed)
		})

		t.Run("while the store does not answer a claim", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			hangs := make(chan struct{})
			var once sync.Once
			r.store.failBefore("Claim", func(ctx context.Context) error {
				once.Do(func() { close(hangs) })
				<-ctx.Done()
				return ctx.Err()
			})
			w := worker.New(config(r.store))
			w.Start(t.Context())
			<-hangs
			begin := time.Now()
			require.NoError(t, w.Close(t.Context()))
			require.Less(t, time.Since(begin), soon)
		})

		t.Run("while the store stores no outcomes, and returns an error", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			r.store.failBefore("Ack", func(context.Context) error { return errors.New("store away") })
			w := worker.New(config(r.store))
			w.Start(t.Context())
			r.take(w).Ack()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := w.Close(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "1 outcomes not stored")
			require.Equal(t, outmill.StatusLeased, r.get(rec).Status)
		})

		t.Run("while the store hangs with an outcome", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append("a")
			r.store.failBefore("Ack", func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
			w := worker.New(config(r.store))
			w.Start(t.Context())
			r.take(w).Ack()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begin := time.Now()
			require.Error(t, w.Close(ctx))
			require.Less(t, time.Since(begin), soon)
		})
	})

	t.Run("Stop releases items that were not taken", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("a", "b", "c")
		w := worker.New(config(r.store))
		w.Start(t.Context())
		taken := r.take(w)
		r.eventuallyStatus(records[2], outmill.StatusLeased)
		w.Stop()
		taken.Ack()
		require.NoError(t, w.Close(t.Context()))
		require.Nil(t, r.get(records[0]))
		for _, rec := range records[1:] {
			now := r.get(rec)
			require.Equal(t, outmill.StatusPending, now.Status)
			require.Zero(t, now.Attempts)
			require.Zero(t, now.Expiries)
		}
	})

	t.Run("no record stays leased after any end of a worker", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		for round := range 12 {
			var words []string
			for i := range 30 {
				words = append(words, fmt.Sprintf("k%d:%d-%d", i%4, round, i))
			}
			r.append(words...)
			cfg := config(r.store)
			cfg.Order = outmill.Order(round % 3)
			cfg.Pipelined = round%2 == 0
			w := worker.New(cfg)
			w.Start(t.Context())
			enough := rand.IntN(40)
			for n := 0; n < enough; {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				items, err := w.Take(ctx, 3)
				cancel()
				if err != nil {
					break
				}
				n += len(items)
				for _, it := range items {
					settleAnyhow(it)
				}
			}
			require.NoError(t, w.Close(t.Context()))
			stats, err := r.store.Stats(t.Context(), 0)
			require.NoError(t, err)
			for _, s := range stats {
				require.Zero(t, s.Leased, "round %d", round)
			}
		}
	})
}

func settleAnyhow(it *worker.Item) {
	switch rand.IntN(5) {
	case 0:
		it.Release()
	case 1:
		it.Abandon(time.Millisecond, "no luck")
	case 2:
		it.Snooze(time.Millisecond)
	case 3:
		it.Fail("no good")
	default:
		it.Ack()
	}
}
