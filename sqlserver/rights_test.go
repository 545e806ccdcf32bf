package sqlserver_test

import (
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/sqlserver"
)

// nothing is an empty transaction.
func nothing(context.Context, *sql.Tx) error { return nil }

// asLogin returns the URL for another login.
func asLogin(t *testing.T, text, login, password string) string {
	t.Helper()
	parsed, err := url.Parse(text)
	require.NoError(t, err)
	parsed.User = url.UserPassword(login, password)
	return parsed.String()
}

// newLogin makes a login. It is dropped with the test, after the databases that the test makes
// later.
func newLogin(t *testing.T) string {
	t.Helper()
	server, login := sqlservertest.Server(t), unique("outmill_")
	onServer(t, server, "CREATE LOGIN "+login+" WITH PASSWORD = '"+password+"'")
	t.Cleanup(func() { onServer(t, server, "DROP LOGIN "+login) })
	return login
}

const password = "Secret-1234"

func TestStore_Rights(t *testing.T) {
	t.Parallel()

	t.Run("a login needs no more than the rights that are granted (OBX-123)", func(t *testing.T) {
		t.Parallel()
		user := newLogin(t)
		// The test has a database of its own, with which the user is dropped.
		at := sqlservertest.Database(t)
		config := sqlserver.Config{Retain: time.Hour}
		super := newStore(t, connect(t, at), config)
		require.NoError(t, super.Ensure(t.Context()))
		execute(t, super.DB(), "CREATE USER "+user+" FOR LOGIN "+user)
		userURL := asLogin(t, at, user, password)
		db := connect(t, userURL)

		err := newStore(t, db, config).Append(t.Context(), one("never"))
		require.Error(t, err, "without any right")

		for _, statement := range super.Grants(user) {
			execute(t, super.DB(), statement)
		}
		store := newStore(t, db, config)
		require.NoError(t, store.Ensure(t.Context()), "it looks, and has nothing to do")
		everything(t, store)
		_, err = db.ExecContext(t.Context(), "CREATE TABLE "+unique("T")+" (n INT)")
		require.Error(t, err, "it cannot make tables")

		for _, revoked := range []string{"SELECT ON [dbo].[OutboxMeta]", "INSERT ON [dbo].[Outbox]", "EXECUTE ON TYPE::[dbo].[OutboxNew]"} {
			execute(t, super.DB(), "REVOKE "+revoked+" FROM ["+user+"]")
			err := newStore(t, connect(t, userURL), config).Append(t.Context(), one("never"))
			require.Error(t, err, revoked)
			require.NotErrorIs(t, err, outmill.ErrSchemaMissing, revoked)
			execute(t, super.DB(), "GRANT "+revoked+" TO ["+user+"]")
		}
	})
}
