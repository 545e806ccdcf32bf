package monitor_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

// callers is a component whose calls fail. internal/allstores has tests with the real ones.
type callers []outmill.FailingCall

func (c callers) FailingCalls() []outmill.FailingCall { return c }
func (callers) ClaimedAt() time.Time                  { return time.Time{} }
func (callers) BreakerOpen() bool                     { return false }
func (callers) HeldTopics() []string                  { return nil }

func failingFor(ago time.Duration, call, store string) outmill.FailingCall {
	return outmill.FailingCall{Call: call, Store: store, Since: time.Now().Add(-ago), Times: 7, Err: "away"}
}

// groups is a store with other groups.
type groups struct {
	outmill.Inspector
	list []outmill.GroupInfo
}

func (g groups) Groups(context.Context) ([]outmill.GroupInfo, error) { return g.list, nil }

func TestHealth_FailingCalls(t *testing.T) {
	t.Parallel()
	ready := func(t *testing.T, config monitor.HealthConfig) (int, monitor.Report) {
		code, report, _ := get(t, health(t, open(t, sqlite.Config{EnsureSchema: true}), config).Ready())
		return code, report
	}

	t.Run("a call that delivery needs and that has failed for a minute is a failure, and the same one counts once", func(t *testing.T) {
		t.Parallel()
		calls := callers{failingFor(61*time.Second, storekit.CallClaim, "")}
		code, report := ready(t, monitor.HealthConfig{
			Forwarders: map[string]monitor.HealthForwarder{"kafka": calls}, Subscribers: map[string]monitor.HealthSubscriber{"orders": calls},
		})
		require.Equal(t, http.StatusServiceUnavailable, code)
		p := one(t, report, "call_fails")
		require.Equal(t, monitor.Failure, p.Severity)
		require.Equal(t, "kafka", p.Subject)
		require.Contains(t, p.Text, `No claim of the forwarder "kafka" has succeeded since `)
		require.Contains(t, p.Text, `: 7 failed, the last with "away". No record is delivered.`)
	})

	t.Run("a call that has failed for less than a minute is no problem", func(t *testing.T) {
		t.Parallel()
		code, report := ready(t, monitor.HealthConfig{
			Subscribers: map[string]monitor.HealthSubscriber{"orders": callers{failingFor(50*time.Second, storekit.CallClaim, "")}},
		})
		require.Equal(t, http.StatusOK, code)
		require.Empty(t, report.Problems)
	})

	t.Run("upkeep, listening and a call of one of several stores are warnings, and the process stays ready", func(t *testing.T) {
		t.Parallel()
		for _, call := range []outmill.FailingCall{
			failingFor(time.Hour, storekit.CallUpkeep, ""), failingFor(time.Hour, storekit.CallMaintain, ""),
			failingFor(time.Hour, storekit.CallListen, ""), failingFor(time.Hour, storekit.CallClaim, "acme"),
		} {
			code, report := ready(t, monitor.HealthConfig{Janitors: map[string]monitor.FailingCaller{"nightly": callers{call}}})
			require.Equal(t, http.StatusOK, code)
			p := one(t, report, "call_fails")
			require.Equal(t, monitor.Warning, p.Severity)
			require.Equal(t, call.Store, p.Store)
			require.Contains(t, p.Text, `the janitor "nightly"`)
		}
	})

	t.Run("every kind of call has a text and a remedy of its own", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for _, call := range storekit.Calls {
			_, report := ready(t, monitor.HealthConfig{Janitors: map[string]monitor.FailingCaller{
				"nightly": callers{failingFor(time.Hour, call, "")},
			}})
			text, _, _ := strings.Cut(one(t, report, "call_fails").Text, " of the janitor")
			require.False(t, seen[text], text)
			require.NotContains(t, text, "kind")
			seen[text] = true
		}
	})

	t.Run("no janitor is refused", func(t *testing.T) {
		t.Parallel()
		_, err := monitor.NewHealth(open(t, sqlite.Config{}), monitor.HealthConfig{Janitors: map[string]monitor.FailingCaller{"nightly": nil}})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

func TestDoctor_FailingCalls(t *testing.T) {
	t.Parallel()

	t.Run("a call that several workers report is one finding, of the one in which it has failed longest", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		workers := []outmill.WorkerInfo{
			{Name: "young", SeenAt: now, Failing: []outmill.FailingCall{failingFor(2*time.Minute, storekit.CallClaim, "")}},
			{Name: "old", SeenAt: now, Failing: []outmill.FailingCall{failingFor(time.Hour, storekit.CallClaim, "")}},
			{Name: "gone", SeenAt: now.Add(-time.Hour), Failing: []outmill.FailingCall{failingFor(2*time.Hour, storekit.CallExtend, "")}},
			{Name: "well", SeenAt: now, Failing: []outmill.FailingCall{failingFor(time.Second, storekit.CallUpkeep, "")}},
		}
		store := groups{open(t, sqlite.Config{EnsureSchema: true}), []outmill.GroupInfo{{Group: "billing", SeenAt: now, Workers: workers}}}
		p := one(t, examine(t, store, monitor.DoctorConfig{}), "call_fails")
		require.Equal(t, "old", p.Subject)
		require.Equal(t, "billing", p.Group)
		require.Equal(t, monitor.Failure, p.Severity)
		require.Contains(t, p.Text, `No claim of group "billing" in worker "old" has succeeded since `)
		require.Contains(t, p.Text, " by 2 workers.")
	})

	t.Run("a selection of topics that nobody registers for any more is a finding, unless others cover it or it ends", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		long := now.Add(-time.Hour)
		reg := func(seen time.Time, topics ...string) outmill.RegistrationInfo {
			return outmill.RegistrationInfo{Topics: outmill.Topics{Include: topics}, SeenAt: seen}
		}
		ends := reg(long, "gifts")
		ends.ExpiresAt = now.Add(time.Hour)
		store := groups{open(t, sqlite.Config{EnsureSchema: true}), []outmill.GroupInfo{
			{Group: "billing", SeenAt: now, Registrations: []outmill.RegistrationInfo{
				reg(now, "orders", "stays*"), reg(long, "orders"), reg(long, "stays-2"), reg(long, "stays*"), reg(long, "refunds", "orders"), ends,
			}},
			{Group: "away", SeenAt: long, Registrations: []outmill.RegistrationInfo{reg(long, "refunds")}},
		}}
		report := examine(t, store, monitor.DoctorConfig{})
		p := one(t, report, "registration_unseen")
		require.Equal(t, "billing", p.Group)
		require.Contains(t, p.Text, `"refunds, orders"`)
		require.Equal(t, long.UTC(), p.Since)
		require.Equal(t, "away", one(t, report, "group_unseen").Group)
		all := outmill.GroupInfo{Group: "all", SeenAt: now, Registrations: []outmill.RegistrationInfo{reg(now), reg(long, "a*"), reg(long)}}
		require.Empty(t, examine(t, groups{store.Inspector, []outmill.GroupInfo{all}}, monitor.DoctorConfig{}).Problems)
	})
}
