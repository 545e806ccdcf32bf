package worker_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// judging is a worker whose items are judged, and what it has told.
type judging struct {
	*rig
	*worker.Worker
	repeats *worker.Repeats

	mu   sync.Mutex
	told []error
}

func newJudging(t *testing.T) *judging {
	t.Helper()
	j := &judging{rig: newRig(t), repeats: worker.NewRepeats()}
	j.Worker = j.start(func(c *worker.Config) {
		c.Retry.MaxAttempts = 3
		c.Repeats = j.repeats
		c.OnError = func(err error) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.told = append(j.told, err)
		}
	})
	return j
}

// judge has the next item of the worker judged n times by err.
func (j *judging) judge(n int, err error) (last storekit.Verdict) {
	j.Helper()
	for range n {
		last = j.take(j.Worker).Judge(err)
	}
	return last
}

func (j *judging) tellings() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.told)
}

func TestItem_Judge(t *testing.T) {
	t.Parallel()
	cause := errors.New("another handler was faster")
	counting := &storekit.Collision{Err: cause, Counts: true}
	waiting := &storekit.Collision{Err: cause}

	t.Run("from the tenth collision in a row on each one counts as an attempt, until the record is dead", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		rec := j.append("m1")[0]
		require.True(t, j.judge(9, counting).Snooze)
		require.Zero(t, j.repeats.Most())
		require.Equal(t, storekit.Verdict{Delay: time.Millisecond}, j.judge(1, counting))
		require.Equal(t, 10, j.repeats.Most())
		require.False(t, j.judge(1, counting).Dead, "the second attempt")
		require.Equal(t, 11, j.repeats.Most())
		require.Contains(t, j.repeats.Problems()[topic], rec.ID.String()+", 11 times in a row")
		require.Contains(t, j.repeats.Problems()[topic], cause.Error())
		require.True(t, j.judge(1, counting).Dead, "the third attempt")
		require.Eventually(t, func() bool { return j.get(rec).Status == outmill.StatusDead }, soon, tick)
		require.Equal(t, "12 times in a row: another handler was faster", j.get(rec).LastError)
		require.Zero(t, j.repeats.Most())
		require.Empty(t, j.repeats.Problems())
	})

	t.Run("claims of another process count in the row", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		j.append("m1")
		require.True(t, j.judge(1, counting).Snooze)
		j.SetLimit(0)
		request := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: outmill.DefaultGroup, Limit: 1, Lease: soon}
		for range 8 {
			var found []*outmill.Record
			require.Eventually(t, func() bool {
				var err error
				found, err = j.store.Store.Claim(t.Context(), request)
				require.NoError(t, err)
				return len(found) == 1
			}, soon, tick)
			require.NoError(t, j.store.Snooze(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}}))
		}
		j.SetLimit(10)
		require.False(t, j.judge(1, counting).Snooze, "the tenth of all processes")
	})

	t.Run("another outcome ends the row", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		j.append("m1")
		for _, other := range []error{errors.New("failed"), outmill.Snooze(0)} {
			require.True(t, j.judge(9, counting).Snooze)
			j.judge(1, other)
		}
		require.True(t, j.judge(9, counting).Snooze)
		require.Zero(t, j.tellings())
	})

	t.Run("a wait that ends by itself never counts, and is told from the tenth in a row on, with growing pauses", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		rec := j.append("m1")[0]
		require.Zero(t, j.judge(9, waiting).Delay)
		require.Zero(t, j.tellings())
		first, second := j.judge(1, waiting), j.judge(1, waiting)
		require.True(t, first.Snooze && second.Snooze)
		require.Less(t, first.Delay, second.Delay)
		require.Equal(t, 2, j.tellings())
		require.ErrorContains(t, j.told[1], "11 times in a row: another handler was faster")
		j.take(j.Worker).Ack()
		require.Eventually(t, func() bool { return j.get(rec) == nil }, soon, tick)
		require.Zero(t, j.repeats.Most())
	})

	t.Run("a snooze that the handler chooses never counts, and is reported when it comes for the 100th time in a row", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		rec := j.append("m1")[0]
		require.True(t, j.judge(99, outmill.Snooze(0)).Snooze)
		require.Empty(t, j.repeats.Problems())
		require.True(t, j.judge(1, outmill.Snooze(0)).Snooze)
		require.Contains(t, j.repeats.Problems()[topic], rec.ID.String()+", 100 times in a row")
		require.Zero(t, j.tellings())
		require.Zero(t, j.get(rec).Attempts)
	})

	t.Run("a record that the worker gives back again and again is reported", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		rec := j.append("m1")[0]
		for range 100 {
			j.take(j.Worker).Release()
		}
		require.Contains(t, j.repeats.Problems()[topic], rec.ID.String()+", 100 times in a row")
	})

	t.Run("a message that waits for its join is not reported", func(t *testing.T) {
		t.Parallel()
		j := newJudging(t)
		it := &outmill.Record{MessageID: "wait", Topic: topic, WaitsFor: outmill.NewJoinID()}
		join := &roles.Join{ID: it.WaitsFor, ExpectedSteps: 1}
		require.NoError(t, j.store.StartJoin(t.Context(), join))
		require.NoError(t, j.store.Append(t.Context(), it))
		j.judge(120, outmill.Snooze(0))
		require.Empty(t, j.repeats.Problems())
	})
}
