package storekit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
)

func TestExamination(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	answered := asked.Add(100 * time.Millisecond)
	request := roles.ExamineRequest{ClockDifference: time.Second}

	t.Run("a clock that differs by more than the limit is a finding, in both directions", func(t *testing.T) {
		t.Parallel()
		for now, want := range map[time.Time]string{
			asked.Add(-1500 * time.Millisecond):   "1.5s behind that of this machine",
			answered.Add(1500 * time.Millisecond): "1.5s ahead of that of this machine",
		} {
			var e roles.Examination
			e.AddClock(request, asked, now, answered)
			require.Len(t, e.Findings, 1)
			require.Equal(t, "clock_differs", e.Findings[0].Code)
			require.Contains(t, e.Findings[0].Text, want)
		}
	})

	t.Run("the time of the question and the answer is no difference", func(t *testing.T) {
		t.Parallel()
		for _, now := range []time.Time{asked.Add(-time.Second), asked, answered, answered.Add(time.Second)} {
			var e roles.Examination
			e.AddClock(request, asked, now, answered)
			require.Empty(t, e.Findings)
		}
	})
}
