package postgres_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

func TestStore_FailingCalls(t *testing.T) {
	t.Parallel()

	t.Run("doctor names a listening connection that fails while everything else works, until it works again", func(t *testing.T) {
		t.Parallel()
		database := postgrestest.Database(t)
		through, err := url.Parse(database)
		require.NoError(t, err)
		p := proxy.New(t, through.Host)
		through.Host = p.Addr()
		store, err := postgres.Open(t.Context(), database, postgres.Config{EnsureSchema: true, ListenURL: through.String()}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		sub, err := subscriber.New(store, subscriber.Config{UpkeepInterval: 20 * time.Millisecond, Worker: "reader"}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		require.Empty(t, store.FailingCalls(), "it does not listen")
		_, err = sub.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return listeningSessions(t, store) == 1 }, patience, 5*time.Millisecond)
		p.Refuse()
		found := func() []monitor.Problem {
			report, err := monitor.Doctor(t.Context(), store, monitor.DoctorConfig{FailingFor: time.Nanosecond})
			require.NoError(t, err)
			return slices.DeleteFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind != "call_fails" })
		}
		var problem monitor.Problem
		require.Eventually(t, func() bool {
			if list := found(); len(list) > 0 {
				problem = list[0]
			}
			// The first error is that the connection has ended.
			return strings.Contains(problem.Text, "connection refused")
		}, patience, 10*time.Millisecond)
		require.Equal(t, "reader", problem.Subject)
		require.Equal(t, monitor.Warning, problem.Severity)
		require.Contains(t, problem.Text, "No listening connection of group")
		require.Len(t, sub.FailingCalls(), 1)
		require.Equal(t, storekit.CallListen, sub.FailingCalls()[0].Call)
		p.Return(t)
		require.Eventually(t, func() bool { return len(found()) == 0 }, patience, 10*time.Millisecond)
		require.Empty(t, store.FailingCalls())
	})
}
