package monitor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
)

// abandon fails the next record once, and has it tried again after the delay.
func (m mystery) abandon(reason string, delay time.Duration) {
	m.Helper()
	found := m.claim(1, outmill.OrderKey)
	require.Len(m, found, 1)
	require.NoError(m, m.Abandon(m.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: reason, Delay: delay}}))
}

func TestDoctor_Waiting(t *testing.T) {
	t.Parallel()

	t.Run("a key that fails again and again is named with its attempts, its error and what waits behind it", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			var records []*outmill.Record
			for i := range 4 {
				records = append(records, &outmill.Record{Key: "c-7", MessageID: fmt.Sprint("m", i)})
			}
			m.append(records...)
			m.abandon("card refused", 0)
			m.abandon("card refused", 0)
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})), "fails_again", "2 failed attempts")
			m.abandon("card refused", time.Hour)
			p := one(m.T, examine(m.T, m.Store, monitor.DoctorConfig{}), "fails_again")
			require.Equal(m, []string{"billing", "orders", records[0].ID.String()}, []string{p.Group, p.Topic, p.Subject})
			require.WithinDuration(m, time.Now(), p.Since, time.Minute)
			for _, want := range []string{
				`Key "c-7"`, "3 failed attempts", "card refused", "tried again at", "3 due records of its key are behind it",
			} {
				require.Contains(m, p.Text, want)
			}
			require.NotContains(m, p.Text, "secret payload")
		})
	})

	t.Run("records without a key that fail again and again are one problem, and the worst of them is named", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "m1"}, &outmill.Record{MessageID: "m2"})
			for range 3 {
				var failed []outmill.Settlement
				for _, r := range m.claim(2, outmill.OrderNone) {
					failed = append(failed, outmill.Settlement{Lease: r.Lease(), Err: "timeout of " + r.MessageID})
				}
				require.Len(m, failed, 2)
				require.NoError(m, m.Abandon(m.Context(), failed))
			}
			p := one(m.T, examine(m.T, m.Store, monitor.DoctorConfig{}), "fails_again")
			require.Contains(m, p.Text, "timeout of m1")
			require.Contains(m, p.Text, "1 more record without a key")
		})
	})

	t.Run("an ended lease that nobody takes is named with its worker", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{}, &outmill.Record{}, &outmill.Record{})
			owner := outmill.NewOwnerToken()
			found, err := m.Claim(m.Context(), outmill.ClaimRequest{Owner: owner, Group: "billing",
				Topics: outmill.Topics{Include: []string{"orders"}}, Limit: 2, Lease: time.Millisecond})
			require.NoError(m, err)
			require.Len(m, found, 2)
			require.Eventually(m, func() bool {
				row := rowOf(m, "billing", "orders")
				return row.Pending == 3 && row.Leased == 0
			}, time.Minute, 5*time.Millisecond)
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})), "lease_ended", "it may be reaped at any moment")
			p := one(m.T, examine(m.T, m.Store, monitor.DoctorConfig{EndedLease: time.Nanosecond}), "lease_ended")
			require.Equal(m, []string{"billing", "orders"}, []string{p.Group, p.Topic})
			require.Contains(m, p.Text, owner.String())
			require.Contains(m, p.Text, "1 more record")
			require.WithinDuration(m, time.Now(), p.Since, time.Minute)
			n, err := m.ReapExpired(m.Context(), 10)
			require.NoError(m, err)
			require.Equal(m, 2, n)
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{EndedLease: time.Nanosecond})), "lease_ended")
		})
	})

	t.Run("ten keys are named, and the number of the others", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			for i := range 13 {
				m.append(&outmill.Record{Key: fmt.Sprint("k", i)})
			}
			for range 3 {
				var failed []outmill.Settlement
				for _, r := range m.claim(13, outmill.OrderKey) {
					failed = append(failed, outmill.Settlement{Lease: r.Lease(), Err: "boom"})
				}
				require.Len(m, failed, 13)
				require.NoError(m, m.Abandon(m.Context(), failed))
			}
			var last monitor.Problem
			n := 0
			for _, p := range examine(m.T, m.Store, monitor.DoctorConfig{}).Problems {
				if p.Kind == "fails_again" {
					n, last = n+1, p
				}
			}
			require.Equal(m, 11, n)
			require.Contains(m, last.Text, "3 more keys")
		})
	})
}

// rowOf returns the counts of a topic of a group.
func rowOf(m mystery, group, topic string) outmill.TopicStats {
	m.Helper()
	stats, err := m.Stats(m.Context(), 0)
	require.NoError(m, err)
	for _, row := range stats {
		if row.Group == group && row.Topic == topic {
			return row
		}
	}
	return outmill.TopicStats{}
}
