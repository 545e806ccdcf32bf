package allstores

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storekit"
)

// nobody are URLs at which no server listens, with a password.
var nobody = map[string]string{
	"sqlite":    "sqlite:/nowhere/orders.db",
	"postgres":  "postgres://me:S3CRET@127.0.0.1:1/orders",
	"mongo":     "mongodb://me:S3CRET@127.0.0.1:1/orders",
	"srv":       "mongodb+srv://me:S3CRET@localhost/orders",
	"sqlserver": "sqlserver://me:S3CRET@127.0.0.1:1",
	"mysql":     "mysql://me:S3CRET@127.0.0.1:1/orders",
}

func refusedParameter(t *testing.T, database, parameters string) *storekit.UnknownParameterError {
	t.Helper()
	_, err := outmill.Open(t.Context(), database+"?"+parameters, nil)
	require.ErrorIs(t, err, outmill.ErrInvalidConfig, "%s?%s", database, parameters)
	require.NotContains(t, err.Error(), "S3CRET")
	var unknown *storekit.UnknownParameterError
	require.ErrorAs(t, err, &unknown, "%s?%s", database, parameters)
	return unknown
}

func TestParameters(t *testing.T) {
	t.Parallel()

	t.Run("a misspelt parameter of a URL is refused with the one that is meant, by every store", func(t *testing.T) {
		t.Parallel()
		for store, database := range nobody {
			for parameter, want := range map[string]string{
				"retian=24h": "retain", "retain_join=1h": "retain_joins", "retainJoins=1h": "retain_joins", "dedupwindow=1h": "dedup_window",
				"ensure-schema=true": "ensure_schema", "EnsureSchema=true": "ensure_schema", "Retain=1h": "retain", "names=x": "name",
				"batch_sise=10": "batch_size", "maxAttempts=3": "max_attempts", "append_loglevel=debug": "append_log_level",
			} {
				unknown := refusedParameter(t, database, parameter)
				require.Equal(t, want, unknown.Nearest, "%s: %s", store, parameter)
				require.Contains(t, unknown.Error(), "do you mean "+want+"?")
				require.Contains(t, unknown.Known, want)
				require.IsIncreasing(t, unknown.Known)
			}
		}
		require.Equal(t, "fair_topics", refusedParameter(t, nobody["sqlite"], "fair_topic=orders").Nearest)
		require.Equal(t, "fair_topics", refusedParameter(t, nobody["postgres"], "fair_topic=orders").Nearest)
		require.Equal(t, "fair_topics", refusedParameter(t, nobody["mysql"], "fair_topic=orders").Nearest)
	})

	t.Run("a parameter that belongs to nobody is refused where the driver would ignore it", func(t *testing.T) {
		t.Parallel()
		for store, parameter := range map[string]string{
			"sqlite": "listen=x", "mongo": "poolsize=3", "srv": "pool_size=3", "sqlserver": "pool_size=3",
			"mysql": "pool_size=3",
		} {
			require.Empty(t, refusedParameter(t, nobody[store], parameter).Nearest, store)
		}
	})

	t.Run("the parameters of drivers and servers are not refused", func(t *testing.T) {
		t.Parallel()
		for store, names := range map[string][]string{
			"sqlite": {"_pragma", "_txlock", "_time_format", "mode", "cache", "immutable", "nolock", "psow"},
			"postgres": append(serverSettings(t), "pool_max_conns", "pool_min_conns", "pool_max_conn_lifetime", "pool_max_conn_idle_time",
				"pool_health_check_period", "pool_max_conn_lifetime_jitter", "pool_min_idle_conns", "sslmode", "sslrootcert", "sslcert", "sslkey",
				"target_session_attrs", "connect_timeout", "application_name", "default_query_exec_mode", "statement_cache_capacity",
				"description_cache_capacity", "passfile", "service", "servicefile", "krbspn", "krbsrvname", "options", "host", "port", "user",
				"dbname", "database", "my_extension.setting"),
			"srv": {"appName", "authMechanism", "authSource", "compressors", "connectTimeoutMS", "directConnection", "heartbeatFrequencyMS",
				"journal", "loadBalanced", "localThresholdMS", "maxConnecting", "maxIdleTimeMS", "maxPoolSize", "maxStalenessSeconds",
				"minPoolSize", "readConcernLevel", "readPreference", "readPreferenceTags", "replicaSet", "retryReads", "retryWrites",
				"serverMonitoringMode", "serverSelectionTimeoutMS", "socketTimeoutMS", "srvMaxHosts", "srvServiceName", "ssl", "timeoutMS", "tls",
				"tlsAllowInvalidCertificates", "tlsCAFile", "tlsCertificateKeyFile", "tlsInsecure", "w", "waitQueueTimeoutMS", "wTimeoutMS",
				"zlibCompressionLevel"},
			"mysql": {"tls", "timeout", "readTimeout", "writeTimeout", "collation", "charset", "interpolateParams", "parseTime", "loc",
				"clientFoundRows", "multiStatements", "allowCleartextPasswords", "maxAllowedPacket", "sql_mode", "time_zone"},
			"sqlserver": {"database", "encrypt", "app name", "user id", "password", "port", "TrustServerCertificate", "certificate", "tlsmin",
				"packet size", "log", "connection timeout", "hostNameInCertificate", "keepAlive", "ServerSPN", "Workstation ID",
				"ApplicationIntent", "failoverpartner", "failoverport", "disableRetry", "protocol", "dial timeout", "pipe",
				"multiSubnetFailover", "notraceid", "guid conversion", "timezone", "epa enabled", "fedauth", "columnencryption", "authenticator"},
		} {
			query := url.Values{}
			for _, name := range names {
				query.Set(name, "1")
			}
			_, err := outmill.Open(t.Context(), nobody[store]+"?"+query.Encode(), nil)
			require.Error(t, err)
			var unknown *storekit.UnknownParameterError
			require.NotErrorAs(t, err, &unknown, store)
		}
	})
}

// serverSettings are the names of all settings that a PostgreSQL server has.
func serverSettings(t *testing.T) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), postgrestest.Database(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	rows, err := conn.Query(t.Context(), `SELECT name FROM pg_settings`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(names), 200)
	return names
}
