package allstores

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// throughProxy is the URL of a store behind a proxy.
func throughProxy(t *testing.T, address string) (*proxy.Proxy, string) {
	t.Helper()
	through, err := url.Parse(address)
	require.NoError(t, err)
	p := proxy.New(t, through.Host)
	through.Host = p.Addr()
	if query := through.Query(); through.Scheme == "mongodb" {
		query.Del("replicaSet")
		query.Set("directConnection", "true")
		query.Set("serverSelectionTimeoutMS", "300")
		through.RawQuery = query.Encode()
	}
	return p, through.String()
}

func callsOf(list []outmill.FailingCall) (names []string) {
	for _, call := range list {
		names = append(names, call.Call)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestFailingListener(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"PostgreSQL", "MongoDB"} {
		t.Run("while the server is away, the store, its subscriber and the probe name the connection that listens, on "+name, func(t *testing.T) {
			t.Parallel()
			address := addresses[name](t)
			openAt(t, address)
			p, through := throughProxy(t, address)
			var store outmill.Store
			// The limit that makes calls end soon while the server is away may be too short for a busy machine.
			require.Eventually(t, func() (is bool) {
				var err error
				store, err = outmill.Open(t.Context(), through, nil)
				return err == nil
			}, patience, time.Millisecond)
			t.Cleanup(func() { _ = store.Close() })
			cfg := quick()
			cfg.UpkeepInterval, cfg.MaxErrorBackoff = 20*time.Millisecond, 20*time.Millisecond
			sub, err := subscriber.New(store, cfg, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = sub.Close() })
			subscribe(t, sub)
			h, err := monitor.NewHealth(store, monitor.HealthConfig{FailingFor: time.Nanosecond, Timeout: 300 * time.Millisecond})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(sub.FailingCalls()) == 0 }, patience, 10*time.Millisecond)
			p.Refuse()
			require.Eventually(t, func() bool {
				return slices.Equal(callsOf(storekit.FailingOf(store)), []string{storekit.CallListen})
			}, patience, 10*time.Millisecond)
			require.Eventually(t, func() bool {
				failing := callsOf(sub.FailingCalls())
				return !slices.ContainsFunc([]string{storekit.CallClaim, storekit.CallListen, storekit.CallRegister, storekit.CallUpkeep},
					func(call string) bool { return !slices.Contains(failing, call) })
			}, patience, 10*time.Millisecond, "%v", sub.FailingCalls())
			report, err := h.Check(t.Context())
			require.NoError(t, err)
			i := slices.IndexFunc(report.Problems, func(p monitor.Problem) bool { return p.Kind == "call_fails" })
			require.GreaterOrEqual(t, i, 0, "%v", report.Problems)
			require.Equal(t, monitor.Warning, report.Problems[i].Severity)
			require.True(t, strings.HasPrefix(report.Problems[i].Text, "No listening connection of the store has succeeded since "))
			p.Return(t)
			// A janitor waits for 30 s after a Maintain that failed.
			require.Eventually(t, func() bool {
				return !slices.ContainsFunc(sub.FailingCalls(), func(c outmill.FailingCall) bool { return c.Call != storekit.CallMaintain })
			}, patience, 10*time.Millisecond, "%v", sub.FailingCalls())
			require.Empty(t, storekit.FailingOf(store))
		})
	}
}
