package postgres_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/certificate"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// newCertificate makes a certificate, and returns a file with it.
func newCertificate(t *testing.T) (shown certificate.Certificate, file string) {
	t.Helper()
	shown, err := certificate.New()
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, shown.PEM(), 0o600))
	return shown, file
}

func TestStore_TLS(t *testing.T) {
	t.Parallel()

	t.Run("a store talks TLS to a server that it trusts and to no other (OBX-126)", func(t *testing.T) {
		t.Parallel()
		shown, trusted := newCertificate(t)
		_, other := newCertificate(t)
		engine := postgrestest.Own(t)
		require.NoError(t, engine.UseTLS(t.Context(), shown))

		verified := func(host, authority string) string {
			u, err := url.Parse(engine.URL)
			require.NoError(t, err)
			u.Host = host + ":" + u.Port()
			query := u.Query()
			query.Set("sslmode", "verify-full")
			query.Set("sslrootcert", authority)
			query.Set("ensure_schema", "true")
			u.RawQuery = query.Encode()
			return u.String()
		}
		opened, err := outmill.Open(t.Context(), verified("127.0.0.1", trusted), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, opened.Close()) }()
		store := opened.(*postgres.Store)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), one("secret")))
		require.Equal(t, []string{"secret"}, messageIDs(claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))))
		var plain int
		require.NoError(t, store.Pool().QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
			WHERE client_addr IS NOT NULL AND NOT ssl`).Scan(&plain))
		require.Zero(t, plain, "connections without TLS")

		_, err = outmill.Open(t.Context(), verified("127.0.0.1", other), nil)
		require.ErrorContains(t, err, "certificate signed by unknown authority")
		_, err = outmill.Open(t.Context(), verified("localhost", trusted), nil)
		require.ErrorContains(t, err, "wanted to match localhost")
	})
}
