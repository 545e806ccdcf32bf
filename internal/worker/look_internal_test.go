package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLook(t *testing.T) {
	t.Parallel()
	// looks counts the looks in the second after so long without a record.
	looks := func(after time.Duration, hearsOthers bool) int {
		var l look
		began := time.Now()
		l.soon(began)
		count := 0
		for now := began; now.Before(began.Add(after + time.Second)); now = l.at {
			if !now.Before(began.Add(after)) {
				count++
			}
			l.foundNothing(now, 500*time.Millisecond, hearsOthers)
		}
		return count
	}
	t.Run("looks are half as frequent once it is quiet, if the store hears of other processes (OBX-122)", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 2, looks(5*time.Second, true))
		require.Equal(t, 1, looks(30*time.Second, true))
		require.Equal(t, 2, looks(30*time.Second, false))
	})
	t.Run("the wait for records doubles up to the longest, and a signal ends it (OBX-122)", func(t *testing.T) {
		t.Parallel()
		const longest = 500 * time.Millisecond
		var l look
		now := time.Now()
		l.soon(now)
		for want := firstPoll; want < 4*longest; want *= 2 {
			require.True(t, l.due(now))
			l.foundNothing(now, longest, false)
			require.Equal(t, min(want, longest), l.at.Sub(now))
			require.False(t, l.due(now))
			now = l.at
		}
		l.foundNothing(now, longest, false)
		l.soon(now)
		require.True(t, l.due(now), "it was woken")
	})
}
