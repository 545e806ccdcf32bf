package monitor_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// setOf returns a set of these stores.
func setOf(t *testing.T, stores map[string]outmill.Store) *tenants.Set {
	t.Helper()
	var list tenants.Static
	for key, store := range stores {
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	set, err := tenants.New(t.Context(), tenants.Config{Discovery: list, WithoutWake: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	return set
}

// hanging is a store whose Stats does not return before its context ends.
type hanging struct{ *sqlite.Store }

func (hanging) Stats(ctx context.Context, _ int) ([]outmill.TopicStats, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// hasOne is a store with a record that no group reads.
func hasOne(t *testing.T) *sqlite.Store {
	t.Helper()
	store := open(t, sqlite.Config{EnsureSchema: true})
	appendOne(t, store)
	return store
}

func TestHealth_Set(t *testing.T) {
	t.Parallel()

	t.Run("a tenant that fails is a warning that names it, and the others are checked", func(t *testing.T) {
		t.Parallel()
		set := setOf(t, map[string]outmill.Store{
			"ill": open(t, sqlite.Config{}), "well": hasOne(t), "idle": open(t, sqlite.Config{EnsureSchema: true}),
		})
		h := health(t, set, monitor.HealthConfig{MaxAge: time.Nanosecond})
		code, report, _ := get(t, h.Ready())
		require.Equal(t, http.StatusOK, code)
		require.Len(t, report.Problems, 2)
		require.Equal(t, "schema_missing", report.Problems[0].Kind)
		require.Equal(t, monitor.Warning, report.Problems[0].Severity)
		require.Equal(t, "ill", report.Problems[0].Store)
		require.Equal(t, "oldest_due", report.Problems[1].Kind)
		require.Equal(t, "well", report.Problems[1].Store)
	})

	t.Run("a tenant that hangs is a warning that names it", func(t *testing.T) {
		t.Parallel()
		set := setOf(t, map[string]outmill.Store{"ill": hanging{open(t, sqlite.Config{EnsureSchema: true})}, "well": hasOne(t)})
		report := check(t, health(t, set, monitor.HealthConfig{MaxAge: time.Nanosecond, Timeout: 100 * time.Millisecond}))
		require.Equal(t, string(monitor.Warning), report.Status)
		require.Len(t, report.Problems, 2)
		require.Equal(t, "ill", report.Problems[0].Store)
		require.Equal(t, "well", report.Problems[1].Store)
	})

	t.Run("a set of which each tenant fails is a failure", func(t *testing.T) {
		t.Parallel()
		set := setOf(t, map[string]outmill.Store{"ill": open(t, sqlite.Config{}), "worse": open(t, sqlite.Config{})})
		code, report, _ := get(t, health(t, set, monitor.HealthConfig{}).Ready())
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Len(t, report.Problems, 1)
	})

	t.Run("dead records of a tenant that answers again are no new ones", func(t *testing.T) {
		t.Parallel()
		ill, well := open(t, sqlite.Config{}), hasOne(t)
		h := health(t, setOf(t, map[string]outmill.Store{"ill": ill, "well": well}), monitor.HealthConfig{MaxAge: time.Hour})
		require.Equal(t, string(monitor.Warning), check(t, h).Status)
		require.NoError(t, ill.Ensure(t.Context()))
		killOne(t, ill)
		require.Equal(t, "ok", check(t, h).Status)
	})
}

func TestWhy_Set(t *testing.T) {
	t.Parallel()

	member := func(t *testing.T, records ...*outmill.Record) mystery {
		t.Helper()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(records...)
		return m
	}

	t.Run("a record waits for no record of another tenant, whatever its key is", func(t *testing.T) {
		t.Parallel()
		other := member(t, &outmill.Record{MessageID: "theirs", Key: "k"}, &outmill.Record{MessageID: "more"})
		require.Len(t, other.claim(1, outmill.OrderKey), 1)
		mine := member(t, &outmill.Record{MessageID: "mine", Key: "k"})
		m := mystery{t, setOf(t, map[string]outmill.Store{"other": other.Store, "mine": mine.Store})}
		kinds, text, all := m.reasons("mine")
		require.Equal(t, []string{"due"}, kinds, text)
		require.Zero(t, all[0].Before, text)
	})

	t.Run("a pause in one tenant stops no record of another", func(t *testing.T) {
		t.Parallel()
		mine, other := member(t, &outmill.Record{MessageID: "mine"}), member(t, &outmill.Record{MessageID: "theirs"})
		pauses, ok := outmill.As[roles.Pauses](other.Store)
		require.True(t, ok)
		require.NoError(t, pauses.Pause(t.Context(), roles.PauseScope{Topic: "orders"}, "ann", ""))
		set := setOf(t, map[string]outmill.Store{"other": other.Store, "mine": mine.Store})
		m := mystery{t, set}
		kinds, text, _ := m.reasons("mine")
		require.Equal(t, []string{"due"}, kinds, text)
		kinds, text, _ = m.reasons("theirs")
		require.Contains(t, kinds, "paused", text)
		require.NoError(t, set.Pause(t.Context(), roles.PauseScope{Topic: "orders"}, "ann", ""))
		kinds, text, _ = m.reasons("mine")
		require.Contains(t, kinds, "paused", text)
	})

	t.Run("a step of a join in one of several tenants says how the join stands", func(t *testing.T) {
		t.Parallel()
		mine, other := member(t), member(t)
		joins, ok := outmill.As[roles.Joins](mine.Store)
		require.True(t, ok)
		join := &roles.Join{ExpectedSteps: 3}
		require.NoError(t, joins.StartJoin(t.Context(), join))
		mine.append(&outmill.Record{MessageID: "step", Joins: []outmill.JoinID{join.ID}})
		m := mystery{t, setOf(t, map[string]outmill.Store{"other": other.Store, "mine": mine.Store})}
		kinds, text, _ := m.reasons("step")
		require.Equal(t, []string{"due", "step_of_join"}, kinds, text)
	})

	t.Run("an answer without a tenant that failed names it", func(t *testing.T) {
		t.Parallel()
		well := member(t, &outmill.Record{MessageID: "one"})
		set := setOf(t, map[string]outmill.Store{"ill": open(t, sqlite.Config{}), "well": well.Store})
		for id, want := range map[string]string{
			"one":                            `Found 1 of the message's records; ill did not answer.`,
			"two":                            `The stores that answered have no record or message with this id; ill did not answer, so ask again.`,
			outmill.NewWorkItemID().String(): `The stores that answered have no record or message with this id; ill did not answer, so ask again.`,
		} {
			answer, err := monitor.Why(t.Context(), set, id, monitor.WhyConfig{})
			require.ErrorIs(t, err, outmill.ErrSchemaMissing)
			require.True(t, storekit.SomeAnswered(err))
			require.Equal(t, want, answer.Text)
			require.Equal(t, []string{"ill"}, answer.Unanswered)
			require.False(t, answer.Complete)
		}
	})

	t.Run("no tenant that answers is an error", func(t *testing.T) {
		t.Parallel()
		set := setOf(t, map[string]outmill.Store{"ill": open(t, sqlite.Config{}), "worse": open(t, sqlite.Config{})})
		_, err := monitor.Why(t.Context(), set, "one", monitor.WhyConfig{})
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
		require.False(t, storekit.SomeAnswered(err))
	})
}
