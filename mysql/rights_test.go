package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/roles"
)

// as returns a store of a new user with these rights, such as INSERT ON records.
func as(t *testing.T, database string, rights ...string) *mysql.Store {
	t.Helper()
	admin := mysqltest.Pool(t, database)
	u, err := url.Parse(database)
	require.NoError(t, err)
	user := "u" + testenv.Suffix("_")
	for _, statement := range append([]string{fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'secret'", user)}, rights...) {
		if right, table, grants := strings.Cut(statement, " ON "); grants {
			statement = fmt.Sprintf("GRANT %s ON %soutmill_%s TO '%s'@'%%'", right, strings.TrimPrefix(u.Path, "/")+".", table, user)
		}
		_, err := admin.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	t.Cleanup(func() { _, _ = admin.Exec(fmt.Sprintf("DROP USER '%s'@'%%'", user)) })
	u.User = url.UserPassword(user, "secret")
	store, err := mysql.Open(t.Context(), u.String(), mysql.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// publishes and reads are the rights of docs/mysql.md.
var (
	publishes = []string{
		"SELECT, INSERT ON records", "SELECT, INSERT, UPDATE ON entries", "SELECT ON meta", "SELECT ON notes",
	}
	reads = []string{
		"SELECT, INSERT, UPDATE, DELETE ON records", "SELECT, INSERT, UPDATE, DELETE ON entries", "SELECT, INSERT, UPDATE, DELETE ON meta",
		"SELECT, INSERT, UPDATE, DELETE ON notes", "SELECT, INSERT, UPDATE, DELETE ON lines",
	}
)

func prepared(t *testing.T) string {
	t.Helper()
	database := mysqltest.Database(t)
	store, err := mysql.Open(t.Context(), database, mysql.Config{EnsureSchema: true}, nil)
	require.NoError(t, err)
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	require.NoError(t, store.Close())
	return database
}

func lacking(t *testing.T, store *mysql.Store, task roles.Task) (subjects []string) {
	t.Helper()
	found, err := store.Examine(t.Context(), roles.ExamineRequest{
		Tasks: []roles.Task{task}, OpenTransaction: time.Hour, LockWait: time.Hour, ClockDifference: time.Hour,
	})
	require.NoError(t, err)
	for _, f := range found.Findings {
		if f.Code == "right_missing" {
			subjects = append(subjects, f.Subject)
		}
	}
	return subjects
}

func TestStore_Rights(t *testing.T) {
	t.Parallel()

	t.Run("a program that publishes needs no more than the documented rights", func(t *testing.T) {
		t.Parallel()
		store := as(t, prepared(t), publishes...)
		require.NoError(t, store.Append(t.Context(), rec("a", "key"), &outmill.Record{Topic: "orders", DedupKey: "once"}))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error { return store.Append(ctx, rec("b", "")) }))
		require.Empty(t, lacking(t, store, roles.TaskPublish))
		require.Contains(t, lacking(t, store, roles.TaskRead), "DELETE ON outmill_records")
	})

	t.Run("a program that reads needs no more than the documented rights", func(t *testing.T) {
		t.Parallel()
		store := as(t, prepared(t), reads...)
		require.NoError(t, store.Append(t.Context(), rec("a", "key")))
		owner := outmill.NewOwnerToken()
		require.Equal(t, []string{"a"}, claimed(t, store, owner, outmill.OrderKey))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "other"}))
		require.Empty(t, lacking(t, store, roles.TaskRead))
		require.Empty(t, lacking(t, store, roles.TaskPublish))
	})

	for i, missing := range publishes {
		_, table, _ := strings.Cut(missing, " ON ")
		if table == "meta" {
			continue // Without the version nothing is examined: the call fails with the error of the server.
		}
		t.Run("doctor names the rights on the table of "+table+" if they are missing", func(t *testing.T) {
			t.Parallel()
			rest := slices.Delete(slices.Clone(publishes), i, i+1)
			require.Contains(t, lacking(t, as(t, prepared(t), rest...), roles.TaskPublish), "SELECT ON outmill_"+table)
		})
	}
}
