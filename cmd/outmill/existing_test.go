package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// storeCommands are all commands that work on a store and create none, with arguments that are right.
func storeCommands(url string) [][]string {
	id := outmill.NewWorkItemID().String()
	return [][]string{
		{"status", url}, {"list", url}, {"show", url, id}, {"why", url, id}, {"doctor", url}, {"dead", url}, {"audit", url},
		{"requeue", url, "--yes"}, {"requeue", url, id}, {"edit", url, id, "--set", "a=b"}, {"skip", url, id},
		{"delete", url, id}, {"delete", url, "--topic", "orders", "--yes"},
		{"groups", "list", url}, {"groups", "pause", url, "--topic", "orders"}, {"groups", "resume", url, "--topic", "orders"},
		{"groups", "drop", url, "billing", "--yes"}, {"publish", url, "--topic", "orders", "--payload", "x"},
		{"forward", url, "--to", "memory:", "--once"}, {"dashboard", url, "--listen", "127.0.0.1:0"},
		{"schema", "status", url}, {"schema", "upgrade", url},
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()

	t.Run("a mistyped path of a SQLite file is refused by name, and creates nothing", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "oders.db")
		for _, args := range storeCommands("sqlite:" + file) {
			got := tool(t, args...)
			want := exitFailed
			if args[0] == "doctor" {
				want = exitUsage
			}
			require.Equal(t, want, got.code, "%v: %s", args, got.stderr)
			require.Empty(t, got.stdout, args)
			require.Equal(t, "outmill: the file "+file+" does not exist: check the path, or create the store with: "+
				"outmill schema ensure sqlite:"+file+"\n", got.stderr, args)
			require.NoFileExists(t, file, args)
		}
	})

	t.Run("the error names the command for the store, however it is named", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "a shop.db")
		got := tool(t, "status", "sqlite:"+file+"?table_prefix=web_")
		require.Contains(t, got.stderr, "outmill schema ensure 'sqlite:"+file+"?table_prefix=web_'\n")
		config := writeFile(t, "url: 'sqlite:"+file+"'\n")
		require.Contains(t, tool(t, "status", "--config", config).stderr, "outmill schema ensure --config "+config+"\n")
		other := newWorld(t)
		config = tenantsFile(t, other.url, "sqlite:"+file)
		require.Contains(t, tool(t, "status", "--config", config, "--tenant", "globex").stderr,
			"outmill schema ensure --config "+config+" --tenant globex\n")
		got = tool(t, "status", "--config", config)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "globex: outmill: the file "+file+" does not exist")
		got = tool(t, "forward", "--config", config, "--to", "memory:", "--once")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "globex: outmill: the file "+file+" does not exist")
		report := diagnose(t, exitFailed, "--config", config)
		require.Equal(t, []string{"file_missing", "globex"}, []string{report.Problems[0].Kind, report.Problems[0].Store})
		require.NoFileExists(t, file)
		ok(t, "schema", "ensure", "--config", config, "--tenant", "globex")
		ok(t, "status", "--config", config)
	})

	t.Run("ensure, forward with --ensure, and a URL that says so create the file", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{
			{"schema", "ensure", "URL"}, {"forward", "URL", "--to", "memory:", "--once", "--ensure"}, {"status", "URL?ensure_schema=true"},
		} {
			file := newFile(t)
			for i := range args {
				args[i] = strings.Replace(args[i], "URL", "sqlite:"+file, 1)
			}
			ok(t, args...)
			require.FileExists(t, file)
			require.Equal(t, "sqlite:"+file+" has no records.\n", ok(t, "status", "sqlite:"+file))
		}
		file := newFile(t)
		require.Contains(t, tool(t, "status", "sqlite:"+file+"?mode=rwc").stderr, "has no schema")
		require.FileExists(t, file, "the URL asks for it")
	})

	t.Run("a store without a schema is refused with the command that makes it", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		require.NoError(t, openDB(t, file).PingContext(t.Context()))
		for _, args := range storeCommands("sqlite:" + file) {
			got := tool(t, args...)
			require.Equal(t, exitFailed, got.code, "%v: %s", args, got.stderr)
			if args[0] != "doctor" {
				require.Contains(t, got.stderr, "outmill schema ensure sqlite:"+file+"\n", args)
				require.NotContains(t, got.stderr, "Serving the dashboard")
			}
		}
	})

	t.Run("a tenant without a schema is named, with the command for all", func(t *testing.T) {
		t.Parallel()
		acme, file := newWorld(t), newFile(t)
		require.NoError(t, openDB(t, file).PingContext(t.Context()))
		config := tenantsFile(t, acme.url, "sqlite:"+file)
		got := tool(t, "list", "--config", config)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "outmill: 1 store failed; ")
		require.Contains(t, got.stderr, `member "globex"`)
		require.Contains(t, got.stderr, "for the schemas of all tenants: outmill schema ensure --config "+config+"\n")
		acme.append(t, &outmill.Record{Topic: "orders"})
		got = tool(t, "forward", "--once", "--to", "memory:", "--config", config)
		require.Equal(t, exitFailed, got.code, "the job must not seem to be done")
		require.Contains(t, got.stderr, "the result is without 1 tenant:\nglobex: ")
		require.Contains(t, got.stderr, "outmill schema ensure --config "+config+" --tenant globex")
		require.Regexp(t, `Forwarded the due records.* messages=1\b`, got.stderr, "of the other tenant")
		ok(t, "schema", "ensure", "--config", config)
		ok(t, "list", "--config", config)
	})

	t.Run("an error of the URL shows it as the user wrote it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		got := tool(t, "status", w.url+"?fair_topic=orders")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, w.url+"?fair_topic=orders: ")
		require.Contains(t, got.stderr, "do you mean fair_topics?")
		require.NotContains(t, got.stderr, "mode=rw")
		require.NotContains(t, got.stderr, "Connection.URL")
		got = tool(t, "status", strings.TrimPrefix(w.url, "sqlite:"))
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "is a file, and has no scheme: want the URL "+w.url)
	})
}
