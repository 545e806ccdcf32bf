package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
)

func TestDoctor_Workers(t *testing.T) {
	t.Parallel()
	register := func(m mystery, reg outmill.Registration) {
		reg.Group = "billing"
		if !reg.Stopped {
			reg.Topics = outmill.Topics{Include: []string{"orders"}}
		}
		require.NoError(m, m.RegisterGroup(m.Context(), reg))
	}

	t.Run("a group whose last worker has stopped is named at once, with what waits in it", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "m1"})
			register(m, outmill.Registration{Worker: "host:1", Problems: map[string]string{"": "the broker is away"}})
			register(m, outmill.Registration{Worker: "host:2"})
			register(m, outmill.Registration{Worker: "host:2", Stopped: true})
			require.Equal(m, []string{"breaker_open"}, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})), "host:1 runs")
			register(m, outmill.Registration{Worker: "host:1", Stopped: true})
			p := one(m.T, examine(m.T, m.Store, monitor.DoctorConfig{}), "group_unseen")
			require.Equal(m, "billing", p.Group)
			require.Contains(m, p.Text, `Group "billing" has no worker: its last one, "host:1", stopped at `)
			require.Contains(m, p.Text, "1 record waits")
			require.WithinDuration(m, time.Now(), p.Since, time.Minute)
			kinds, text, _ := m.reasons("m1")
			require.Contains(m, kinds, "not_seen")
			require.Contains(m, text, "stopped at")
			health, err := monitor.NewHealth(m.Store, monitor.HealthConfig{})
			require.NoError(m, err)
			report, err := health.Check(m.Context())
			require.NoError(m, err)
			require.Equal(m, []string{"group_unseen"}, kindsOf(report))

			register(m, outmill.Registration{Worker: "host:3"})
			require.Empty(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})))
		})
	})

	t.Run("a handler that hangs is named with its worker and its record until it returns or its worker stops", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "m1"}, &outmill.Record{MessageID: "m2"})
			found := m.claim(2, outmill.OrderNone)
			since := time.Now().UTC().Truncate(time.Millisecond)
			register(m, outmill.Registration{Worker: "host:1", Handling: []outmill.Handling{
				{Record: found[0].ID, Topic: "orders", Since: since.Add(-10 * time.Minute)},
				{Record: found[1].ID, Topic: "orders", Since: since.Add(-2 * time.Minute)},
			}})
			p := one(m.T, examine(m.T, m.Store, monitor.DoctorConfig{}), "handler_hangs")
			require.Equal(m, []string{"billing", "orders", "host:1"}, []string{p.Group, p.Topic, p.Subject})
			require.Equal(m, since.Add(-10*time.Minute), p.Since)
			require.Contains(m, p.Text, found[0].ID.String())
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{MaxHandling: time.Hour})), "handler_hangs")
			kinds, text, _ := m.reasons("m2")
			require.Contains(m, kinds, "handler_runs")
			require.Contains(m, text, `Its handler in worker "host:1" has run since`)

			register(m, outmill.Registration{Worker: "host:1", Stopped: true})
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})), "handler_hangs")
		})
	})

	t.Run("workers that read a topic in different orders are named until one of them stops", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			// Two patterns: only the counts of the store have the topic.
			m.append(&outmill.Record{MessageID: "m1"})
			reads := func(order outmill.Order, include string) []outmill.Reading {
				return []outmill.Reading{{Topics: outmill.Topics{Include: []string{include}}, Order: order}}
			}
			register(m, outmill.Registration{Worker: "new", Reads: reads(outmill.OrderKey, "o*")})
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})), "orders_differ")
			register(m, outmill.Registration{Worker: "old", Reads: reads(outmill.OrderNone, "*s")})
			p := one(m.T, examine(m.T, m.Store, monitor.DoctorConfig{}), "orders_differ")
			require.Equal(m, []string{"billing", "orders"}, []string{p.Group, p.Topic})
			require.Contains(m, p.Text, `"old" without an order; "new" in the order of keys (block)`)
			require.Contains(m, p.Remedy, "the same Order and KeyPolicy")

			register(m, outmill.Registration{Worker: "old", Stopped: true})
			require.NotContains(m, kindsOf(examine(m.T, m.Store, monitor.DoctorConfig{})), "orders_differ")
		})
	})
}
