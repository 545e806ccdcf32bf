package main

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/internal/testenv/mongotest"
)

func TestMongo(t *testing.T) {
	t.Parallel()

	t.Run("the schema for mongodb", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		printed := outmillTool(t.Context(), "schema", "print", urlOf(t, db))
		require.Equal(t, exitOK, printed.code, printed.stderr)
		for line := range strings.Lines(printed.stdout) {
			require.Regexp(t, `^(db\.runCommand\(\{.*\}\);)?\n$`, line)
		}

		t.Run("is one script that makes a store that works", func(t *testing.T) {
			t.Parallel()
			byHand := mongotest.Database(t)
			runCommands(t, byHand, printed.stdout)
			requireWorks(t, urlOf(t, byHand))
			again := outmillTool(t.Context(), "schema", "ensure", urlOf(t, byHand))
			require.Equal(t, exitOK, again.code, again.stderr)
			requireWorks(t, urlOf(t, byHand))
		})
		t.Run("is made by schema ensure, which can be repeated", func(t *testing.T) {
			t.Parallel()
			for range 2 {
				got := outmillTool(t.Context(), "schema", "ensure", urlOf(t, db))
				require.Equal(t, exitOK, got.code, got.stderr)
				require.Contains(t, got.stdout, "is up to date")
			}
			requireWorks(t, urlOf(t, db))
		})
		t.Run("is that of the URL's parameters", func(t *testing.T) {
			t.Parallel()
			got := outmillTool(t.Context(), "schema", "print", urlOf(t, db, "collection_prefix", "web_"))
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Contains(t, got.stdout, `"web_records"`)
			require.NotContains(t, got.stdout, "outmill_records")
		})
	})

	t.Run("groups pause and resume stop and continue a tenant in mongodb", func(t *testing.T) {
		t.Parallel()
		at := urlOf(t, mongotest.Database(t))
		ok(t, "schema", "ensure", at)
		requireWorks(t, at)
		require.Equal(t, "Paused: tenant \"acme\".\n", ok(t, "groups", "pause", at, "--tenant", "acme", "--by", "ann", "--reason", "unpaid"))
		require.Regexp(t, `tenant "acme" by ann since \S+: unpaid`, ok(t, "groups", "list", at))
		got := tool(t, "groups", "resume", at, "--topic", "orders")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, `tenant "acme" by ann`)
		require.Equal(t, "Resumed: tenant \"acme\".\n", ok(t, "groups", "resume", at, "--tenant", "acme"))
		require.NotContains(t, ok(t, "groups", "list", at), "Paused")
	})

	t.Run("doctor names a lock of the server, although it may not ask for longer than its timeout", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t).URL
		db := mongotest.DatabaseOn(t, server)
		at := strings.Replace(server, "/?", "/"+db.Name()+"?", 1)
		ok(t, "schema", "ensure", at)
		admin := db.Client().Database("admin")
		require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}, {Key: "lock", Value: true}}).Err())
		t.Cleanup(func() {
			require.NoError(t, admin.RunCommand(context.WithoutCancel(t.Context()), bson.D{{Key: "fsyncUnlock", Value: 1}}).Err())
		})
		report := diagnose(t, exitFailed, at, "--timeout", "10s")
		require.Equal(t, "server_locked", report.Problems[0].Kind)
	})

	t.Run("a mongodb that cannot be reached is a failure that tells no password", func(t *testing.T) {
		t.Parallel()
		got := outmillTool(t.Context(), "schema", "print", "mongodb://me:S3CRET@127.0.0.1:1/orders?serverSelectionTimeoutMS=100")
		require.Equal(t, exitFailed, got.code)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, "127.0.0.1")
		require.NotContains(t, got.stderr, "S3CRET")
	})
}

// urlOf is the URL of a database on the server of the tests, with more
// parameters.
func urlOf(t *testing.T, db *mongo.Database, parameters ...string) string {
	t.Helper()
	parsed, err := url.Parse(mongotest.Server(t))
	require.NoError(t, err)
	parsed.Path = "/" + db.Name()
	query := parsed.Query()
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	parsed.RawQuery = query.Encode()
	return parsed.String()
}

// runCommands does what mongosh does with the script.
func runCommands(t *testing.T, db *mongo.Database, script string) {
	t.Helper()
	for line := range strings.Lines(script) {
		text, isCommand := strings.CutPrefix(strings.TrimSpace(line), "db.runCommand(")
		if !isCommand {
			continue
		}
		var command bson.D
		require.NoError(t, bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(text, ");")), false, &command), line)
		require.NoError(t, db.RunCommand(t.Context(), command).Err(), line)
	}
}
