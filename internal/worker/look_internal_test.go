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
	t.Run("looks are half as frequent once it is quiet, if the store hears of other processes", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 2, looks(5*time.Second, true))
		require.Equal(t, 1, looks(30*time.Second, true))
		require.Equal(t, 2, looks(30*time.Second, false))
	})
}
