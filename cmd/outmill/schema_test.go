package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func newFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "orders.db")
}

func openDB(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func requireWorks(t *testing.T, url string) {
	t.Helper()
	require.NoError(t, works(t.Context(), url))
}

// works appends a record and claims it.
func works(ctx context.Context, url string) error {
	store, err := outmill.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.RegisterGroup(ctx, outmill.Registration{}); err != nil {
		return err
	}
	if err := store.Append(ctx, &outmill.Record{Topic: "orders"}); err != nil {
		return err
	}
	claimed, err := store.Claim(ctx, outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 10, Lease: time.Minute})
	if err == nil && len(claimed) != 1 {
		err = fmt.Errorf("claimed %d records", len(claimed))
	}
	return err
}

func schemaOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	var text string
	require.NoError(t, db.QueryRowContext(t.Context(),
		`SELECT group_concat(type || ' ' || name || ' ' || coalesce(sql, ''), char(10)) 
			FROM (SELECT * FROM sqlite_master ORDER BY name)`).Scan(&text))
	return text
}

func TestSchema(t *testing.T) {
	t.Parallel()

	t.Run("the printed schema", func(t *testing.T) {
		t.Parallel()
		printed := outmillTool(t.Context(), "schema", "print", "sqlite::memory:")
		require.Equal(t, exitOK, printed.code, printed.stderr)
		require.Empty(t, printed.stderr)

		t.Run("is one script that makes a store that works", func(t *testing.T) {
			t.Parallel()
			file := newFile(t)
			_, err := openDB(t, file).ExecContext(t.Context(), printed.stdout)
			require.NoError(t, err)
			requireWorks(t, "sqlite:"+file)
		})
		t.Run("is what schema ensure makes, which then has nothing left to do", func(t *testing.T) {
			t.Parallel()
			byHand, byEnsure := newFile(t), newFile(t)
			db := openDB(t, byHand)
			_, err := db.ExecContext(t.Context(), printed.stdout)
			require.NoError(t, err)
			before := schemaOf(t, db)
			require.Equal(t, exitOK, outmillTool(t.Context(), "schema", "ensure", "sqlite:"+byEnsure).code)
			require.Equal(t, schemaOf(t, openDB(t, byEnsure)), before)
			require.Equal(t, exitOK, outmillTool(t.Context(), "schema", "ensure", "sqlite:"+byHand).code)
			require.Equal(t, before, schemaOf(t, db))
		})
		t.Run("runs in SQLite's own shell", func(t *testing.T) {
			t.Parallel()
			shell, err := exec.LookPath("sqlite3")
			if err != nil {
				t.Skip("skipped: no sqlite3 shell on this machine; install the package sqlite3")
			}
			file := newFile(t)
			cmd := exec.CommandContext(t.Context(), shell, "-bail", file)
			cmd.Stdin = strings.NewReader(printed.stdout)
			output, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", output)
			require.Empty(t, output)
			requireWorks(t, "sqlite:"+file)
		})
	})

	t.Run("printing runs nothing", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		require.Equal(t, exitOK, outmillTool(t.Context(), "schema", "print", "sqlite:"+file).code)
		require.NoFileExists(t, file)
		_, err := openDB(t, file).ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER)`)
		require.NoError(t, err)
		before := schemaOf(t, openDB(t, file))
		require.Equal(t, exitOK, outmillTool(t.Context(), "schema", "print", "sqlite:"+file+"?table_prefix=web_&mode=ro").code)
		require.Equal(t, before, schemaOf(t, openDB(t, file)))
	})

	t.Run("ensure makes the schema and can be repeated", func(t *testing.T) {
		t.Parallel()
		url := "sqlite:" + newFile(t)
		for _, args := range [][]string{{"schema", "ensure", url}, {"schema", "ensure", url}} {
			got := outmillTool(t.Context(), args...)
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Equal(t, "The schema in "+url+" is up to date.\n", got.stdout)
		}
		requireWorks(t, url)
	})

	t.Run("failures say why on standard error", func(t *testing.T) {
		t.Parallel()
		fails := func(t *testing.T, ctx context.Context, args ...string) string {
			t.Helper()
			got := outmillTool(ctx, args...)
			require.Equal(t, exitFailed, got.code)
			require.Empty(t, got.stdout)
			require.True(t, strings.HasSuffix(got.stderr, "\n"))
			return got.stderr
		}
		t.Run("a store that the tool does not have", func(t *testing.T) {
			t.Parallel()
			stderr := fails(t, t.Context(), "schema", "print", "cassandra://me:S3CRET@db/orders")
			require.Contains(t, stderr, "cassandra://me:xxxxx@db/orders")
			require.Contains(t, stderr, "postgres")
			require.Contains(t, stderr, "sqlite")
			require.NotContains(t, stderr, "S3CRET")
		})
		t.Run("text that is no URL", func(t *testing.T) {
			t.Parallel()
			require.Contains(t, fails(t, t.Context(), "schema", "print", "orders.db"), "has no scheme")
		})
		t.Run("a folder that does not exist", func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "missing", "orders.db")
			require.Contains(t, fails(t, t.Context(), "schema", "ensure", "sqlite:"+file), file)
		})
		t.Run("a schema that is newer than the tool", func(t *testing.T) {
			t.Parallel()
			file := newFile(t)
			require.Equal(t, exitOK, outmillTool(t.Context(), "schema", "ensure", "sqlite:"+file).code)
			_, err := openDB(t, file).ExecContext(t.Context(), `UPDATE outmill_meta SET version = 999`)
			require.NoError(t, err)
			require.Contains(t, fails(t, t.Context(), "schema", "ensure", "sqlite:"+file), outmill.ErrSchemaNewer.Error())
		})
		t.Run("an interruption", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.Contains(t, fails(t, ctx, "schema", "ensure", "sqlite:"+newFile(t)), "it was interrupted")
		})
	})

	t.Run("a statement ends with one semicolon that no comment swallows", func(t *testing.T) {
		t.Parallel()
		for statement, want := range map[string]string{
			"SELECT 1":                     "SELECT 1;",
			"SELECT 1;":                    "SELECT 1;",
			"SELECT 1 ; \n":                "SELECT 1;",
			"SELECT 1 -- one":              "SELECT 1 -- one\n;",
			"-- one\nSELECT 1":             "-- one\nSELECT 1;",
			"SELECT 1\nFROM t -- c;\n\n\n": "SELECT 1\nFROM t -- c\n;",
		} {
			require.Equal(t, want, terminated(statement))
		}
	})

	t.Run("comments tell goose where a statement with semicolons in it begins and ends", func(t *testing.T) {
		t.Parallel()
		var out strings.Builder
		require.NoError(t, printStatements([]string{"SELECT 1", "SELECT 2; SELECT 3"}, goose, &out))
		require.Equal(t, "-- +goose Up\nSELECT 1;\n\n-- +goose StatementBegin\nSELECT 2; SELECT 3;\n-- +goose StatementEnd\n", out.String())
		out.Reset()
		require.NoError(t, printStatements(nil, goose, &out))
		require.Empty(t, out.String())
	})

	t.Run("from a version only the later steps are printed", func(t *testing.T) {
		t.Parallel()
		whole := outmillTool(t.Context(), "schema", "print", "sqlite::memory:")
		require.Equal(t, whole, outmillTool(t.Context(), "schema", "print", "--from", "0", "sqlite::memory:"))
		newest := outmillTool(t.Context(), "schema", "print", "--from", "1", "sqlite::memory:")
		require.Equal(t, exitOK, newest.code, newest.stderr)
		require.Empty(t, newest.stdout+newest.stderr, "nothing is left to do")
		for version, want := range map[string]error{"999": outmill.ErrSchemaNewer, "-1": outmill.ErrInvalidConfig} {
			got := outmillTool(t.Context(), "schema", "print", "--from="+version, "sqlite::memory:")
			require.Equal(t, exitFailed, got.code)
			require.Contains(t, got.stderr, want.Error())
			require.Empty(t, got.stdout)
		}
		for _, args := range [][]string{{"--from", "x"}, {"--from"}, {"--ensure"}} {
			got := outmillTool(t.Context(), append([]string{"schema", "print", "sqlite::memory:"}, args...)...)
			require.Equal(t, exitUsage, got.code, got.stdout)
		}
	})

	// No schema has two versions yet. That steps bring an older one to the newest is tested with migrations that only tests have.
	t.Run("from the newest version there are no steps", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		require.Equal(t, exitOK, outmillTool(t.Context(), "schema", "ensure", url).code)
		steps := outmillTool(t.Context(), "schema", "print", "--from", "1", url)
		require.Equal(t, exitOK, steps.code, steps.stderr)
		require.NotContains(t, steps.stdout, "CREATE")
		requireWorks(t, url)
	})
}

func TestSchema_Serial(t *testing.T) {
	t.Run("without a URL the store is that of a source in the environment", func(t *testing.T) {
		file := newFile(t)
		t.Setenv("OUTMILL_SOURCES_SHOP_SQLITE_CONNECTION_STRING", "sqlite:"+file)
		got := outmillTool(t.Context(), "schema", "ensure", "--source", "shop")
		require.Equal(t, exitOK, got.code, got.stderr)
		requireWorks(t, "sqlite:"+file)

		got = outmillTool(t.Context(), "schema", "print", "--source", "elsewhere")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "OUTMILL_SOURCES_ELSEWHERE_<PROVIDER>_CONNECTION_STRING")

		got = outmillTool(t.Context(), "schema", "print", "--source", "shop", "sqlite:"+file)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "want it without a URL")
	})

	t.Run("without a URL and a source the store is that of OUTMILL_URL, and remedies name the variable", func(t *testing.T) {
		file := newFile(t)
		t.Setenv("OUTMILL_URL", "sqlite:"+file)
		got := outmillTool(t.Context(), "status")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, `outmill schema ensure "$OUTMILL_URL"`)
		got = outmillTool(t.Context(), "schema", "ensure")
		require.Equal(t, exitOK, got.code, got.stderr)
		requireWorks(t, "sqlite:"+file)
		got = outmillTool(t.Context(), "schema", "ensure", "sqlite:"+newFile(t))
		require.Equal(t, exitOK, got.code, "a URL wins")
		got = outmillTool(t.Context(), "status", "--source", "elsewhere")
		require.Equal(t, exitUsage, got.code, "a source wins")
	})
}
