package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
)

func TestWhy_Line(t *testing.T) {
	t.Parallel()

	t.Run("what is before a record is counted, or is a lower bound that was counted, whatever else the store has", func(t *testing.T) {
		t.Parallel()
		onEngines(t, func() time.Duration { return time.Hour }, func(m mystery) {
			const most = 100
			batch := func(n int, name string) {
				records := make([]*outmill.Record, n)
				for i := range records {
					records[i] = &outmill.Record{MessageID: fmt.Sprint(name, i)}
				}
				m.append(records...)
			}
			due := func(id string) monitor.Reason {
				answer, err := monitor.Why(m.Context(), m.Store, id, monitor.WhyConfig{MaxNeighbours: most})
				require.NoError(m, err)
				require.Len(m, answer.Explanations, 1)
				require.Equal(m, "due", answer.Explanations[0].Reasons[0].Kind)
				return answer.Explanations[0].Reasons[0]
			}
			batch(2*most, "processed")
			var leases []outmill.Lease
			for _, r := range m.claim(2*most, outmill.OrderNone) {
				leases = append(leases, r.Lease())
			}
			require.Len(m, leases, 2*most)
			require.NoError(m, m.Ack(m.Context(), "", leases))
			batch(most+50, "waits")

			reason := due("waits40")
			require.Equal(m, []any{40, false}, []any{reason.Before, reason.AtLeast}, reason.Text)
			require.Contains(m, reason.Text, "40 due records of its group and topic became due before it.")
			reason = due("waits0")
			require.Equal(m, []any{0, false}, []any{reason.Before, reason.AtLeast}, reason.Text)
			reason = due("waits149")
			require.Equal(m, []any{most, true}, []any{reason.Before, reason.AtLeast}, reason.Text)
			require.Contains(m, reason.Text, "At least 100 due records of its group and topic became due before it")
		})
	})
}
