package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

func TestUpkeep(t *testing.T) {
	t.Parallel()

	t.Run("a janitors round ends with the owner's context", func(t *testing.T) {
		t.Parallel()
		for name, failure := range map[string]fault{"where the tidying went well": nil, "also where it failed": away} {
			t.Run("round, "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.store.failBefore("ReapExpired", failure)
				ctx, stop := context.WithCancel(t.Context())
				rounds, ended := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					worker.Upkeep(ctx, r.store, time.Millisecond, watermill.NopLogger{}, func(ctx context.Context) error {
						select {
						case rounds <- struct{}{}:
						case <-ctx.Done():
						}
						return nil
					})
				}()
				for range 3 {
					<-rounds
				}
				stop()
				<-ended
				require.GreaterOrEqual(t, r.store.called("ReapExpired"), 3)
			})
		}
	})

	t.Run("tidying reaps ended leases", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		w := r.start(nil)
		it := r.take(w)
		w.SetLimit(0)
		r.endLease(rec)
		require.NoError(t, worker.Tidy(t.Context(), r.store, watermill.NopLogger{}))
		require.Equal(t, outmill.StatusPending, r.get(rec).Status)
		require.Equal(t, 1, r.get(rec).Expiries)
		it.Release()
	})

	t.Run("tidying deletes joins that ended longer ago than they are kept", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		ended := func() outmill.JoinID {
			join := storekit.Join{ExpectedSteps: 1}
			require.NoError(t, r.store.StartJoin(t.Context(), &join))
			require.NoError(t, r.store.CancelJoin(t.Context(), join.ID, "not needed"))
			return join.ID
		}
		old := ended()
		r.exec(`UPDATE outmill_joins SET finished_at = finished_at - ?`, (25 * time.Hour).Microseconds())
		recent := ended()
		require.NoError(t, worker.Tidy(t.Context(), r.store, watermill.NopLogger{}))
		_, err := r.store.GetJoin(t.Context(), old)
		require.ErrorIs(t, err, storekit.ErrUnknownJoin)
		_, err = r.store.GetJoin(t.Context(), recent)
		require.NoError(t, err)
	})

	t.Run("tidying ends registrations and logs the numbers of registrations and records", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		brief := outmill.Registration{Group: "replies", TTL: time.Hour, Topics: outmill.Topics{Include: []string{topic}}}
		require.NoError(t, r.store.RegisterGroup(t.Context(), brief))
		r.append("a", "b")
		log := watermill.NewCaptureLogger()
		require.NoError(t, worker.Tidy(t.Context(), r.store, log))
		require.Empty(t, log.Captured()[watermill.InfoLogLevel], "nothing to tell")
		r.exec(`UPDATE outmill_groups SET expires_at = 0 WHERE grp = ?`, "replies")
		require.NoError(t, worker.Tidy(t.Context(), r.store, log))
		told := log.Captured()[watermill.InfoLogLevel]
		require.Len(t, told, 1)
		require.Equal(t, watermill.LogFields{"registrations": 1, "records": 2, "store": r.store.Name()}, told[0].Fields)
		groups, err := r.store.Groups(t.Context())
		require.NoError(t, err)
		require.Len(t, groups, 1, "that of the rig")
	})

	t.Run("a store with more maintenance to do is called again after four times the duration of a call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			log := watermill.NewCaptureLogger()
			store := &housekeeping{maintain: func(call int) (bool, error) {
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
			worker.Maintained(ctx, store, log)
			var pauses []time.Duration
			for i, at := range store.calls[1:] {
				pauses = append(pauses, at.Sub(store.calls[i])-100*time.Millisecond)
			}
			require.Equal(t, []time.Duration{400 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 30 * time.Second}, pauses)
			require.Len(t, log.Captured()[watermill.ErrorLogLevel], 1)
		})
	})

	t.Run("a process that ends soon has the store do the housekeeping that there is and no more than a hundred calls", func(t *testing.T) {
		t.Parallel()
		for _, left := range []int{3, 1000} {
			store := &housekeeping{maintain: func(call int) (bool, error) { return call < left, nil }}
			require.NoError(t, worker.MaintainOnce(t.Context(), store))
			require.Len(t, store.calls, min(left, 100))
		}
	})
}

// housekeeping is a store whose Maintain calls a function of the test.
type housekeeping struct {
	outmill.Store
	maintain func(call int) (more bool, err error)
	calls    []time.Time
}

func (h *housekeeping) Name() string { return "store" }

func (h *housekeeping) Maintain(context.Context) (bool, error) {
	h.calls = append(h.calls, time.Now())
	return h.maintain(len(h.calls))
}
