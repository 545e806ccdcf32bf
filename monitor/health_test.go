package monitor_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

func open(t *testing.T, config sqlite.Config) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), config, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func health(t *testing.T, store outmill.Inspector, config monitor.HealthConfig) *monitor.Health {
	t.Helper()
	h, err := monitor.NewHealth(store, config)
	require.NoError(t, err)
	return h
}

func check(t *testing.T, h *monitor.Health) monitor.Report {
	t.Helper()
	report, err := h.Check(t.Context())
	require.NoError(t, err)
	return report
}

func appendOne(t *testing.T, store outmill.Writer) {
	t.Helper()
	msg := message.NewMessage(watermill.NewUUID(), []byte("secret payload"))
	rec, err := storekit.RecordOf("orders", msg)
	require.NoError(t, err)
	require.NoError(t, store.Append(t.Context(), rec))
}

func killOne(t *testing.T, store outmill.Store) {
	t.Helper()
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Topics: topics}))
	appendOne(t, store)
	found, err := store.Claim(t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Topics: topics, Limit: 1, Lease: time.Minute,
	})
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "bad"}}))
}

func get(t *testing.T, handler http.Handler) (int, monitor.Report, string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	body := w.Body.String()
	var report monitor.Report
	require.NoError(t, json.Unmarshal([]byte(body), &report))
	return w.Code, report, body
}

// broken is a database that refuses the connection with a text that holds a credential.
type broken struct{ outmill.Inspector }

func (broken) Stats(context.Context, int) ([]outmill.TopicStats, error) {
	return nil, errors.New("dial postgres://app:hunter2@db: refused")
}

// aged is a store whose due records have been due for an hour longer.
type aged struct{ outmill.Inspector }

func (a aged) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	stats, err := a.Inspector.Stats(ctx, limit)
	for i := range stats {
		if !stats[i].OldestDue.IsZero() {
			stats[i].OldestDue = stats[i].OldestDue.Add(-time.Hour)
		}
	}
	return stats, err
}

// counted counts the calls of Stats.
type counted struct {
	outmill.Inspector
	calls *int
}

func (c counted) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	*c.calls++
	return c.Inspector.Stats(ctx, limit)
}

func TestHealth(t *testing.T) {
	t.Parallel()

	t.Run("a store with a schema is ready", func(t *testing.T) {
		t.Parallel()
		code, report, _ := get(t, health(t, open(t, sqlite.Config{EnsureSchema: true}), monitor.HealthConfig{}).Ready())
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, "ok", report.Status)
		require.Empty(t, report.Problems)
	})

	t.Run("a missing schema makes the process not ready, and it stays live", func(t *testing.T) {
		t.Parallel()
		h := health(t, open(t, sqlite.Config{}), monitor.HealthConfig{})
		code, report, _ := get(t, h.Ready())
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Len(t, report.Problems, 1)
		require.Equal(t, "schema_missing", report.Problems[0].Kind)
		require.Contains(t, report.Problems[0].Remedy, "Ensure")
		code, _, _ = get(t, h.Live())
		require.Equal(t, http.StatusOK, code)
	})

	t.Run("a closed store makes the process not ready", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		require.NoError(t, store.Close())
		code, report, _ := get(t, health(t, store, monitor.HealthConfig{}).Ready())
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "store_closed", report.Problems[0].Kind)
	})

	t.Run("the answer for an unreachable store holds no text of the driver", func(t *testing.T) {
		t.Parallel()
		h := health(t, broken{}, monitor.HealthConfig{})
		code, report, body := get(t, h.Ready())
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, "store_unreachable", report.Problems[0].Kind)
		require.NotEmpty(t, report.Problems[0].Remedy)
		require.NotContains(t, body, "hunter2")
		require.ErrorContains(t, check(t, h).Problems[0].Err, "refused")
	})

	t.Run("an old record is a warning, names its topic and keeps the process ready", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		appendOne(t, store)
		code, report, body := get(t, health(t, aged{store}, monitor.HealthConfig{MaxAge: time.Minute}).Ready())
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, "warning", report.Status)
		require.Equal(t, "oldest_due", report.Problems[0].Kind)
		require.Equal(t, "orders", report.Problems[0].Topic)
		require.Contains(t, report.Problems[0].Remedy, "no group is registered")
		require.NotContains(t, body, "secret payload")
	})

	t.Run("a record that is younger than the limit is no problem", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		appendOne(t, store)
		report := check(t, health(t, aged{store}, monitor.HealthConfig{MaxAge: 2 * time.Hour}))
		require.Empty(t, report.Problems)
	})

	t.Run("only records that die after the first check are a warning", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		killOne(t, store)
		h := health(t, store, monitor.HealthConfig{})
		require.Empty(t, check(t, h).Problems)
		killOne(t, store)
		report := check(t, h)
		require.True(t, report.Ready())
		require.Len(t, report.Problems, 1)
		require.Equal(t, "dead_rising", report.Problems[0].Kind)
		require.Contains(t, report.Problems[0].Text, "by 1 to 2")
	})

	t.Run("a group whose workers are gone is a warning, and ready", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		orders := outmill.Topics{Include: []string{"orders"}}
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "billing", Topics: orders, Worker: "host:1"}))
		require.Empty(t, check(t, health(t, store, monitor.HealthConfig{})).Problems)
		require.Empty(t, check(t, health(t, later{store}, monitor.HealthConfig{Unseen: 2 * time.Hour})).Problems)
		report := check(t, health(t, later{store}, monitor.HealthConfig{}))
		require.True(t, report.Ready())
		require.Len(t, report.Problems, 1)
		require.Equal(t, []string{"group_unseen", "billing"}, []string{report.Problems[0].Kind, report.Problems[0].Group})
	})

	t.Run("many probes cost one query", func(t *testing.T) {
		t.Parallel()
		calls := 0
		store := counted{Inspector: open(t, sqlite.Config{EnsureSchema: true}), calls: &calls}
		ready := health(t, store, monitor.HealthConfig{CacheFor: time.Hour}).Ready()
		for range 10 {
			get(t, ready)
		}
		require.Equal(t, 1, calls)
	})

	t.Run("a probe that hangs up does not spoil the answer for others", func(t *testing.T) {
		t.Parallel()
		ready := health(t, open(t, sqlite.Config{EnsureSchema: true}), monitor.HealthConfig{CacheFor: time.Hour}).Ready()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		ready.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone))
		code, _, _ := get(t, ready)
		require.Equal(t, http.StatusOK, code)
	})

	t.Run("a check whose context has ended returns its error, and no finding about the store", func(t *testing.T) {
		t.Parallel()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		report, err := health(t, open(t, sqlite.Config{EnsureSchema: true}), monitor.HealthConfig{}).Check(gone)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, report.Problems)
	})

	t.Run("a setting below zero and a nil store are refused", func(t *testing.T) {
		t.Parallel()
		_, err := monitor.NewHealth(broken{}, monitor.HealthConfig{Timeout: -1})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "Timeout")
		_, err = monitor.NewHealth(nil, monitor.HealthConfig{})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}
