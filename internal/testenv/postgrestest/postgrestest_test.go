package postgrestest_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv/enginetest"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, statement string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), statement, args...)
	require.NoError(t, err)
}

func ask(t *testing.T, conn *pgx.Conn, question string, args ...any) string {
	t.Helper()
	var answer string
	require.NoError(t, conn.QueryRow(t.Context(), question, args...).Scan(&answer))
	return answer
}

func TestPostgrestest(t *testing.T) {
	t.Parallel()

	t.Run("each database is another one and is gone with its test", func(t *testing.T) {
		t.Parallel()
		postgrestest.Each(t, func(t *testing.T, mine string) {
			var other string
			t.Run("inner", func(t *testing.T) {
				other = postgrestest.DatabaseOn(t, mine)
				conn := connect(t, other)
				execute(t, conn, "CREATE TABLE things (name text)")
				require.Equal(t, "UTF8 C",
					ask(t, conn, "SELECT pg_encoding_to_char(encoding) || ' ' || datcollate FROM pg_database WHERE datname = current_database()"))
				// The database is dropped while the session is still open.
			})
			_, err := pgx.Connect(t.Context(), other)
			var refused *pgconn.PgError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "3D000", refused.Code)
			require.Equal(t, "0", ask(t, connect(t, mine), "SELECT count(*)::text FROM information_schema.tables WHERE table_name = 'things'"))
		})
	})

	t.Run("each schema is another one and is gone with its test", func(t *testing.T) {
		t.Parallel()
		var name string
		t.Run("inner", func(t *testing.T) {
			conn := connect(t, postgrestest.Schema(t))
			name = ask(t, conn, "SELECT current_schema()::text")
			execute(t, conn, "CREATE TABLE things (name text)")
			require.Equal(t, name, ask(t, conn,
				"SELECT schemaname::text FROM pg_tables WHERE tablename = 'things' AND schemaname = current_schema()"))
			require.NotEqual(t, name, ask(t, connect(t, postgrestest.Schema(t)), "SELECT current_schema()::text"))
			// A transaction that holds a lock does not prevent the drop of the schema.
			left, err := pgx.Connect(t.Context(), postgrestest.Schema(t))
			require.NoError(t, err)
			execute(t, left, "CREATE TABLE things (name text)")
			execute(t, left, "BEGIN")
			execute(t, left, "LOCK TABLE things")
			t.Cleanup(func() { _ = left.Close(context.Background()) })
		})
		require.Equal(t, "0", ask(t, connect(t, postgrestest.Server(t)), "SELECT count(*)::text FROM pg_namespace WHERE nspname = $1", name))
	})

	t.Run("many databases are made at once", func(t *testing.T) {
		t.Parallel()
		postgrestest.Server(t)
		for i := range 20 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				connect(t, postgrestest.Database(t))
			})
		}
	})

	t.Run("a server of the test's own keeps its data and its port over stops and kills", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Own(t, "max_prepared_transactions=3", "application_name=it's mine")
		address := server.URL
		conn := connect(t, address)
		require.Equal(t, "3", ask(t, conn, "SHOW max_prepared_transactions"))
		require.Equal(t, "off", ask(t, conn, "SHOW fsync"))
		require.Equal(t, "it's mine", ask(t, conn, "SHOW application_name"))
		execute(t, conn, "CREATE TABLE things (name text)")
		for name, end := range map[string]func() error{
			"fast":      func() error { return server.Stop(t.Context(), postgresengine.Fast) },
			"immediate": func() error { return server.Stop(t.Context(), postgresengine.Immediate) },
			"kill":      func() error { return server.Kill(t.Context()) },
		} {
			execute(t, connect(t, address), "INSERT INTO things VALUES ($1)", name)
			require.NoError(t, end(), name)
			require.Error(t, postgresengine.Check(t.Context(), address), name)
			require.NoError(t, end(), "%s: again", name)
			require.NoError(t, server.Start(t.Context()), name)
		}
		require.NoError(t, server.Restart(t.Context(), postgresengine.Fast))
		require.Equal(t, address, server.URL)
		require.Equal(t, "fast,immediate,kill", ask(t, connect(t, address), "SELECT string_agg(name, ',' ORDER BY name) FROM things"))
	})

	t.Run("a server leaves no files when its test ends with it", func(t *testing.T) {
		t.Parallel()
		for name, before := range map[string]func(*testing.T, *postgresengine.Engine) error{
			"running": func(*testing.T, *postgresengine.Engine) error { return nil },
			"stopped": func(t *testing.T, server *postgresengine.Engine) error {
				return server.Stop(t.Context(), postgresengine.Fast)
			},
			"killed": func(t *testing.T, server *postgresengine.Engine) error { return server.Kill(t.Context()) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var server *postgresengine.Engine
				t.Run("inner", func(t *testing.T) {
					server = postgrestest.Own(t)
					require.NoError(t, before(t, server))
				})
				if server == nil {
					t.Skip("skipped: no server was started")
				}
				require.NoDirExists(t, server.Dir)
				require.Error(t, postgresengine.Check(t.Context(), server.URL))
			})
		}
	})

	t.Run("a server ends when its test binary is killed", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped: no PostgreSQL is started under -short")
		}
		enginetest.EndsWithItsBinary(t, "TestChild_KilledWithPostgreSQL", postgresengine.Check)
	})

	t.Run("the error for an invalid setting has the server's message", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped: no PostgreSQL is started under -short")
		}
		bin, err := postgresengine.Binaries(t.Context())
		if err != nil {
			t.Skipf("skipped: no PostgreSQL: %v", err)
		}
		for setting, words := range map[string]string{"fsync": "want name=value", "no_such_setting=1": "no_such_setting"} {
			// The server's user cannot access the test's directory, so this is another one.
			dir := filepath.Join(os.TempDir(), "outmill-postgres-"+uuid.NewString())
			server, err := postgresengine.Prepare(t.Context(), bin, dir, setting)
			if err == nil {
				err = server.Start(t.Context())
				server.End()
			}
			require.ErrorContains(t, err, words)
			require.NoError(t, os.RemoveAll(dir))
		}
	})

	t.Run("a user that is not a superuser is refused", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Server(t)
		role := "outmill_" + strings.ReplaceAll(uuid.NewString(), "-", "")
		admin := connect(t, server)
		execute(t, admin, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "DROP ROLE "+role) })
		u, err := url.Parse(server)
		require.NoError(t, err)
		u.User = url.UserPassword(role, "secret")
		require.ErrorContains(t, postgresengine.Check(t.Context(), u.String()), "not a superuser")
	})

	t.Run("pgbouncer gives a session to one transaction at a time", func(t *testing.T) {
		t.Parallel()
		direct := postgrestest.Database(t)
		pooled := postgrestest.PgBouncer(t, direct, "default_pool_size=1")
		config, err := pgx.ParseConfig(pooled)
		require.NoError(t, err)
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		var pids []string
		for range 2 {
			conn, err := pgx.ConnectConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			pids = append(pids, ask(t, conn, "SELECT pg_backend_pid()::text"))
			require.Equal(t, ask(t, connect(t, direct), "SELECT current_database()::text"), ask(t, conn, "SELECT current_database()::text"))
		}
		require.Equal(t, pids[0], pids[1], "two clients, both connected, have the same session")
	})
}

func TestChild_KilledWithPostgreSQL(t *testing.T) {
	enginetest.IsChild(t)
	server := postgrestest.Own(t)
	enginetest.Tell(t, server.URL, server.Dir)
}

func TestPostgrestest_Serial(t *testing.T) {
	t.Run("a server that the environment names is taken and must answer", func(t *testing.T) {
		named := postgrestest.Server(t)
		t.Setenv(postgresengine.EnvURL, named)
		found, err := postgresengine.Find(t.Context())
		require.NoError(t, err)
		require.Equal(t, named, found)

		t.Setenv(postgresengine.EnvURL, "postgres://postgres:secret@127.0.0.1:1/postgres")
		_, err = postgresengine.Find(t.Context())
		require.ErrorContains(t, err, postgresengine.EnvURL)
		require.NotContains(t, err.Error(), "secret")
	})
}
