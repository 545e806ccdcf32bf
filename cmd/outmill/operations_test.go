package main

import (
	"net/url"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/sqlite"
)

// withParameters adds parameters to a URL.
func withParameters(t *testing.T, text string, parameters map[string]string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	query := u.Query()
	for name, value := range parameters {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// TestOperations tries what docs/operations.md says.
func TestOperations(t *testing.T) {
	t.Parallel()

	t.Run("a forwarder on PostgreSQL has the connections of its pool and one that listens", func(t *testing.T) {
		t.Parallel()
		w := openWorld(t, postgrestest.Database(t))
		admin, err := pgxpool.New(t.Context(), w.url)
		require.NoError(t, err)
		defer admin.Close()
		broker := kafkatest.Fake(t)
		records, _ := numbered("orders", 1000)
		w.append(t, records...)
		d := startDaemon(t, nil, withParameters(t, w.url, map[string]string{"pool_max_conns": "2", "application_name": "the-forwarder"}),
			"--to", "kafka://"+broker.Addrs[0], "--batch-size", "10")
		most := 0
		for w.statusOf(t, "forwarder", "orders").Pending > 0 || most == 0 {
			var n int
			const sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the-forwarder'"
			require.NoError(t, admin.QueryRow(t.Context(), sessions).Scan(&n))
			most = max(most, n)
		}
		require.Len(t, read(t, broker.Addrs, "orders", 1000), 1000)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
		require.LessOrEqual(t, most, 3)
	})

	t.Run("a forwarder works behind a proxy that pools transactions, and doctor too", func(t *testing.T) {
		t.Parallel()
		w := openWorld(t, postgrestest.Database(t))
		broker := kafkatest.Fake(t)
		records, payloads := numbered("orders", 100)
		w.append(t, records...)
		proxied := withParameters(t, postgrestest.PgBouncer(t, w.url), map[string]string{
			"default_query_exec_mode": "exec", "notify_interval": "-1ns",
		})
		d := startDaemon(t, nil, proxied, "--to", "kafka://"+broker.Addrs[0])
		require.ElementsMatch(t, payloads, read(t, broker.Addrs, "orders", 100))
		diagnose(t, exitOK, proxied)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("a copy of SQLite by VACUUM INTO, has all that is not acked", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "billing", "orders")
		w.append(t, orders(3)...)
		require.Equal(t, 3, w.kill(t, "billing", "orders", "no route"))
		w.append(t, orders(2)...)
		store, is := w.Store.(*sqlite.Store)
		require.True(t, is)
		file := filepath.Join(t.TempDir(), "copy.db")
		_, err := store.DB().ExecContext(t.Context(), "VACUUM INTO ?", file)
		require.NoError(t, err)
		report := okJSON[statusReport](t, "status", "sqlite:"+file)
		require.Len(t, report.Topics, 1)
		require.Equal(t, []int{2, 3}, []int{report.Topics[0].Pending, report.Topics[0].Dead})
		ok(t, "requeue", "sqlite:"+file, "--topic", "orders")
		broker := kafkatest.Fake(t)
		ok(t, "forward", "sqlite:"+file, "--group", "billing", "--to", "kafka://"+broker.Addrs[0], "--once")
		require.Len(t, read(t, broker.Addrs, "orders", 5), 5)
	})
}
