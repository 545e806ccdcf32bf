package janitor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/janitor"
)

// slow is a store whose calls take time and have work left. Its clock is that of synctest, for which
// no engine is fast enough.
type slow struct {
	outmill.Store
	maintain func(call int) (more bool, err error)
	// processed is how many records are left to delete; a batch takes batch.
	processed int
	batch     time.Duration
	// fails is the error of a batch.
	fails error
	// maintained, deleted and reaped have the times of the calls.
	maintained, deleted, reaped []time.Time
}

func (s *slow) Name() string { return "store" }

func (s *slow) Maintain(context.Context) (bool, error) {
	s.maintained = append(s.maintained, time.Now())
	if s.maintain == nil {
		return false, nil
	}
	return s.maintain(len(s.maintained))
}

func (s *slow) DeleteProcessed(_ context.Context, limit int) (int, error) {
	n := min(s.processed, limit)
	s.deleted = append(s.deleted, time.Now())
	time.Sleep(s.batch)
	s.processed -= n
	return n, s.fails
}

func (s *slow) ReapExpired(context.Context, int) (int, error) {
	s.reaped = append(s.reaped, time.Now())
	return 0, nil
}

func (*slow) ExpireDue(context.Context, int) (int, error) { return 0, nil }

func (*slow) DeleteDedupKeys(context.Context, int) (int, error) { return 0, nil }

func (*slow) ExpireRegistrations(context.Context, int) (int, int, error) { return 0, 0, nil }

// pauses are the times between calls, each of which took took.
func pauses(calls []time.Time, took time.Duration) (pauses []time.Duration) {
	for i, at := range calls[1:] {
		pauses = append(pauses, at.Sub(calls[i])-took)
	}
	return pauses
}

func TestJanitor_Pace(t *testing.T) {
	t.Parallel()

	t.Run("a store with more maintenance to do is called again after four times the duration of a call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			log := journal.New()
			store := &slow{maintain: func(call int) (bool, error) {
				time.Sleep(100 * time.Millisecond)
				switch call {
				case 1, 2:
					return true, nil
				case 3:
					return false, nil
				case 4:
					return false, errors.New("away")
				}
				stop()
				return false, ctx.Err()
			}}
			j, err := janitor.New(store, janitor.Config{}, log)
			require.NoError(t, err)
			require.NoError(t, j.Run(ctx))
			require.Equal(t, []time.Duration{400 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 30 * time.Second},
				pauses(store.maintained, 100*time.Millisecond))
			require.Len(t, log.Lines(watermill.ErrorLogLevel), 1)
		})
	})

	t.Run("after a full batch the janitor pauses so that it works for its share of the time", func(t *testing.T) {
		t.Parallel()
		for share, want := range map[float64]time.Duration{
			0: 400 * time.Millisecond, 0.5: 100 * time.Millisecond, 1: 0, 1e-300: 30 * time.Second,
		} {
			synctest.Test(t, func(t *testing.T) {
				store := &slow{processed: 2500, batch: 100 * time.Millisecond}
				report, err := newJanitor(t, store, janitor.Config{Share: share}).RunOnce(t.Context())
				require.NoError(t, err)
				require.Equal(t, 2500, report.Processed)
				require.Equal(t, []time.Duration{want, want}, pauses(store.deleted, store.batch))
			})
		}
	})

	t.Run("a round that is not done after the interval ends, and the next one begins at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			// A batch with its pause takes 5 s, so an interval of 60 s has 12 of them.
			store := &slow{processed: 24_500, batch: time.Second}
			var rounds []janitor.Report
			j := newJanitor(t, store, janitor.Config{OnRound: func(r janitor.Report, err error) {
				require.NoError(t, err)
				if rounds = append(rounds, r); len(rounds) == 4 {
					stop()
				}
			}})
			require.NoError(t, j.Run(ctx))
			require.Equal(t, []janitor.Report{{Processed: 12_000}, {Processed: 12_000}, {Processed: 500}, {}}, rounds)
			require.Equal(t, []time.Duration{time.Minute, time.Minute, time.Minute + time.Second}, pauses(store.reaped, 0),
				"leases are reaped in each round")
		})
	})

	t.Run("a process that ends soon calls for the maintenance that is due, at most a hundred times", func(t *testing.T) {
		t.Parallel()
		for _, due := range []int{3, 1000} {
			store := &slow{maintain: func(call int) (bool, error) { return call < due, nil }}
			_, err := newJanitor(t, store, janitor.Config{Share: 1}).RunOnce(t.Context())
			require.NoError(t, err)
			require.Len(t, store.maintained, min(due, 100))
		}
	})

	t.Run("a failed round does not keep the store from its maintenance", func(t *testing.T) {
		t.Parallel()
		store := &slow{fails: errBroken, maintain: func(int) (bool, error) { return false, errors.New("away") }}
		_, err := newJanitor(t, store, janitor.Config{}).RunOnce(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "maintain: away")
	})
}
