package mongo_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/certificate"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// writeFile returns the name of a file with the content.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

func TestStore_TLS(t *testing.T) {
	t.Parallel()

	t.Run("a store uses TLS with a server that it trusts and with no other (OBX-126)", func(t *testing.T) {
		t.Parallel()
		shown, err := certificate.New()
		require.NoError(t, err)
		trusted := writeFile(t, "ca.pem", shown.PEM())
		unknown, err := certificate.New()
		require.NoError(t, err)
		other := writeFile(t, "other.pem", unknown.PEM())
		engine := mongotest.Own(t, "--tlsMode", "preferTLS", "--tlsCertificateKeyFile", writeFile(t, "server.pem", shown.Keystore()),
			"--tlsCAFile", trusted, "--tlsAllowConnectionsWithoutCertificates")

		verified := func(host, authority string) string {
			u, err := url.Parse(engine.URL)
			require.NoError(t, err)
			u.Host = net.JoinHostPort(host, u.Port())
			query := u.Query()
			query.Set("tls", "true")
			query.Set("tlsCAFile", authority)
			query.Set("ensure_schema", "true")
			query.Set("serverSelectionTimeoutMS", "3000")
			u.RawQuery = query.Encode()
			return u.String()
		}
		opened, err := outmill.Open(t.Context(), verified("127.0.0.1", trusted), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, opened.Close()) }()
		store := opened.(*mongo.Store)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "secret"}))
		records := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.Len(t, records, 1)
		require.Equal(t, "secret", records[0].MessageID)
		// This counts only connections with TLS: the test server's own connections have none.
		var status struct {
			TransportSecurity map[string]int64 `bson:"transportSecurity"`
		}
		require.NoError(t, store.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status))
		secure := status.TransportSecurity["1.2"] + status.TransportSecurity["1.3"]
		require.Positive(t, secure, "connections with TLS")

		_, err = outmill.Open(t.Context(), verified("127.0.0.1", other), nil)
		require.ErrorContains(t, err, "certificate signed by unknown authority")
		_, err = outmill.Open(t.Context(), verified("localhost", trusted), nil)
		require.ErrorContains(t, err, "wanted to match localhost")
	})
}
