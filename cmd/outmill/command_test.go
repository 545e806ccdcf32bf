package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestCommand(t *testing.T) {
	t.Parallel()

	t.Run("help goes to standard output and succeeds", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{}, {"-h"}, {"--help"}, {"help"}} {
			got := tool(t, args...)
			require.Equal(t, exitOK, got.code, args)
			require.Empty(t, got.stderr)
			for _, c := range newRoot(terminal{}).Commands() {
				require.Contains(t, got.stdout, "  "+c.Name()+" ")
				require.Contains(t, got.stdout, c.Short)
			}
		}
		for _, args := range [][]string{{"schema", "print", "-h"}, {"help", "schema", "print"}, {"schema", "print", "sqlite:x.db", "-h"}} {
			got := tool(t, args...)
			require.Equal(t, exitOK, got.code, args)
			require.Empty(t, got.stderr)
			require.Contains(t, got.stdout, "outmill schema print [URL | --source NAME]")
			require.Contains(t, got.stdout, "--from VERSION")
		}
	})

	t.Run("the help names the value of each flag in capitals", func(t *testing.T) {
		t.Parallel()
		var visit func(cmd *cobra.Command)
		visit = func(cmd *cobra.Command) {
			cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
				if name, _ := pflag.UnquoteUsage(flag); flag.Value.Type() != "bool" {
					assert.Regexp(t, `^[A-Z][-A-Z:,=/. ]*$`, name, "%s --%s", cmd.CommandPath(), flag.Name)
				}
			})
			for _, member := range cmd.Commands() {
				visit(member)
			}
		}
		visit(newRoot(terminal{}))
	})

	t.Run("the tool names wrong arguments on standard error", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			name string
			args []string
			want []string
		}{
			{"an unknown command", []string{"schemas"}, []string{`no command "schemas"`, "outmill help lists them"}},
			{"a mistyped command", []string{"stauts"}, []string{`no command "stauts" (did you mean status?)`}},
			{"a mistyped command with a URL", []string{"requeu", "sqlite:x.db"}, []string{`no command "requeu" (did you mean requeue?)`}},
			{"an unknown command of a family", []string{"schema", "drop"}, []string{`no command "drop"`, "ensure, print, status, upgrade"}},
			{"a mistyped command of a family", []string{"schema", "pirnt"}, []string{`no command "pirnt" (did you mean print?)`}},
			{"a family without a command", []string{"groups"}, []string{"want one of list, pause, resume, drop"}},
			{"an unknown flag", []string{"schema", "print", "--force", "sqlite:x.db"}, []string{"--force", "outmill schema print -h"}},
			{"a family of cobra with an unknown command", []string{"completion", "fishy"}, []string{`no command "fishy"`, "bash, fish"}},
			{"nobody who does it", []string{"requeue", "sqlite:x.db", "--by", " "}, []string{"--by is empty: want a value"}},
			{"nobody who pauses", []string{"groups", "pause", "sqlite:x.db", "--topic", "x", "--by="}, []string{"--by is empty"}},
			{"an empty file", []string{"status", "--config="}, []string{"--config is empty"}},
			{"an empty source", []string{"status", "--source="}, []string{"--source is empty"}},
			{"an empty filter", []string{"delete", "sqlite:x.db", "--status", "dead", "--topic="}, []string{"--topic is empty"}},
			{"why without an id", []string{"why", "sqlite:x.db"},
				[]string{"the ID of a record or a message is missing", "behind the URL sqlite:x.db"}},
			{"why without anything", []string{"why"}, []string{"the ID of a record or a message is missing"}},
			{"drop without a group", []string{"groups", "drop", "sqlite:x.db"}, []string{"the name of the GROUP is missing"}},
			{"a pause of nothing", []string{"groups", "pause", "sqlite:x.db"}, []string{"no flag says what is meant: want --group, --topic"}},
			{"a pause of a key without its topic", []string{"groups", "pause", "sqlite:x.db", "--key", "7"},
				[]string{"--key is given without --topic"}},
			{"an edit of nothing", []string{"edit", "sqlite:x.db", "01890a5d-ac96-774b-bcce-b302099a8057"},
				[]string{"nothing is to change: want --payload-file"}},
			{"a record without an id", []string{"show", "sqlite:x.db"}, []string{"want the id of one record, as outmill list shows it; got 0 ids"}},
			{"no URL", []string{"schema", "ensure"},
				[]string{"no store is named: want a URL", "OUTMILL_SOURCES_DEFAULT_<PROVIDER>_CONNECTION_STRING"}},
			{"two URLs", []string{"status", "sqlite:a.db", "sqlite:b.db"}, []string{"want one URL", "got 2"}},
			{"a format that does not exist", []string{"status", "sqlite:a.db", "-o", "xml"}, []string{"--output", "xml", "table or json"}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				got := tool(t, tc.args...)
				require.Equal(t, exitUsage, got.code)
				require.Empty(t, got.stdout)
				for _, part := range tc.want {
					require.Contains(t, got.stderr, part)
				}
			})
		}
	})

	t.Run("output that cannot be written is a failure", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{
			{"-h"}, {"schema", "-h"}, {"version"}, {"schema", "print", "sqlite::memory:"}, {"schema", "ensure", "sqlite::memory:"},
		} {
			var stderr bytes.Buffer
			require.Equal(t, exitFailed, run(t.Context(), args, terminal{in: strings.NewReader(""), out: brokenWriter{}, err: &stderr}), args)
		}
	})

	t.Run("the exit code is that of the command", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, exitOK, tool(t, "schema", "print", "sqlite::memory:").code)
		require.Equal(t, exitFailed, tool(t, "schema", "print", "cassandra:x").code)
		require.Equal(t, exitUsage, tool(t, "nonsense").code)
	})

	t.Run("version names the version of the module and of Go", func(t *testing.T) {
		t.Parallel()
		require.Regexp(t, `^outmill \S+ go1\.\S+ \w+/\w+\n$`, ok(t, "version"))
		require.Regexp(t, `^outmill \S+\n$`, ok(t, "--version"))
	})

	t.Run("completion prints a script for each shell, and completes the words of a flag", func(t *testing.T) {
		t.Parallel()
		for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
			require.Contains(t, ok(t, "completion", shell), "outmill")
		}
		require.Contains(t, ok(t, "__complete", "list", "--status", "de"), "dead\n")
		require.Contains(t, ok(t, "__complete", "st"), "status\t")
	})

	t.Run("no password of a URL is printed by any command", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			"postgres://me:S3CRET@127.0.0.1:1/orders",
			"mongodb://me:S3CRET@127.0.0.1:1/orders?serverSelectionTimeoutMS=100",
			// A password that was not escaped, and a scheme that was forgotten.
			"postgres://me:7/S3CRET@127.0.0.1:1/orders", "me:S3CRET@127.0.0.1/orders",
		} {
			t.Run(outmill.RedactURL(url), func(t *testing.T) {
				t.Parallel()
				commands := append(storeCommands(url), []string{"schema", "ensure", url}, []string{"schema", "print", url},
					[]string{"import", "watermill-sql", url, "--from", url, "--topic", "orders"}, []string{"import", "koan", url},
					[]string{"import", "outbox-event-bus", url}, []string{"import", "nservicebus", url})
				requireAllStoreCommands(t, commands)
				for _, args := range commands {
					got := tool(t, args...)
					require.NotEqual(t, exitOK, got.code, "%v: %s", args, got.stderr)
					require.NotEmpty(t, got.stderr, args)
					require.NotContains(t, got.stdout+got.stderr, "S3CRET", args)
				}
			})
		}
	})

	t.Run("no password of a URL in a wrong place is printed", func(t *testing.T) {
		t.Parallel()
		url, id := "postgres://me:S3CRET@127.0.0.1:1/orders?application_name=a-name-that-makes-it-long", "01890a5d-ac96-774b-bcce-b302099a8057"
		w := newWorld(t)
		config := tenantsFile(t, w.url, w.url+"2")
		for _, args := range [][]string{
			{url}, {"schema", url}, {"groups", url}, {"show", url}, {"show", id, url}, {"why", url}, {"edit", id, url, "--set", "a=b"},
			{"skip", id, url}, {"requeue", id, url}, {"delete", id, url}, {"requeue", url, url}, {"status", url, url},
			{"status", "--source", url}, {"status", "--source=" + url}, {"status", "--config", url}, {"status", "--config", config, "--tenant", url},
			{"status", w.url, "--output", url}, {"list", w.url, "--status", url}, {"list", w.url, "--limit=" + url},
			{"edit", w.url, id, "--seen", url},
			{"forward", w.url, "--to", url}, {"forward", w.url, "--to", "kafka://me:7?S3CRET@127.0.0.1:1"},
			{"forward", w.url, "--to", "nats://me:S3/CRET@127.0.0.1:1"}, {"forward", w.url, "--to", "me:S3CRET@127.0.0.1:1"},
			{"status", `postgre://me:"S3CRET@127.0.0.1`}, {"show", w.url, `postgres://me:"S3CRET@127.0.0.1`},
		} {
			got := tool(t, args...)
			require.NotEqual(t, exitOK, got.code, args)
			require.NotEmpty(t, got.stderr, args)
			require.NotContains(t, got.stdout+got.stderr, "S3", args)
		}
	})
}

func TestSecrets(t *testing.T) {
	t.Parallel()

	t.Run("no password of an argument, a variable or a file is printed, wherever it is", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		const url = "postgres://me:S3CRETpw@h/db"
		forward := []string{"forward", w.url, "--to", "memory:", "--once"}
		file := func(text string) []string { return append(forward, "--config", writeFile(t, text)) }
		for _, c := range []struct {
			args      []string
			variables []string
		}{
			{args: []string{"status", "--" + url}},
			{args: []string{"status", "-" + url}},
			{args: []string{"status", w.url, "--limit" + url}},
			{args: []string{"forward", w.url, "--to", "kafka://u:S3CRETpw?S3CRETtail=x@h:9092"}},
			{args: []string{"forward", w.url, "--to", "kafka://u:a?S3CRETtail=x@h:9092"}},
			{args: []string{"forward", w.url, "--to", "kafka://u:a&S3CRETtail#S3CRETend@h"}},
			{args: []string{"forward", w.url}, variables: []string{"OUTMILL_FORWARD_TO=kafka://u:S3CRETpw?S3CRETtail=x@h:9092"}},
			{args: forward, variables: []string{"OUTMILL_FORWARD_BATCH_SIZE=" + url}},
			{args: forward, variables: []string{"OUTMILL_FORWARD_LEASE=" + strings.ToUpper(url)}},
			{args: []string{"status", "--source", "x"},
				variables: []string{"OUTMILL_SOURCES_X_POSTGRES_CONNECTION_STRING=postgres://u:S3CRETpw?S3CRETtail=x@h/db"}},
			{args: file("batch-size: " + url)},
			{args: file("tenants: [{key: a, url: 'sqlite:a.db'}]\nmax-connections: \"" + url + "\"")},
			{args: file("discover: {every: " + url + ", schemas: {url: x, pattern: y}}")},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			cmd := exec.CommandContext(ctx, binary, c.args...)
			cmd.Env = append(os.Environ(), c.variables...)
			output, err := cmd.CombinedOutput()
			require.NoError(t, ctx.Err(), "%v: %s", c, output)
			cancel()
			require.Error(t, err, "%v: %s", c, output)
			require.NotEmpty(t, output, c)
			require.NotContains(t, strings.ToUpper(string(output)), "S3CRET", c)
		}
	})

	t.Run("a password that is a word of the error hides no more than itself", func(t *testing.T) {
		t.Parallel()
		s := findSecrets([]string{"postgres://postgres:postgres@h/db", "kafka://u:abc?defgh@h:1"}, nil)()
		require.Equal(t, "open postgres://postgres:xxxxx@h/db: no postgres", s.hide("open postgres://postgres:postgres@h/db: no postgres"))
		require.NotContains(t, findSecrets([]string{"nats://S3CRETtoken@h:1"}, nil)().hide("bad S3CRETtoken"), "S3CRET")
		require.Equal(t, `parameter "xxxxx" of abc`, s.hide(`parameter "defgh" of abc`))
	})
}

// requireAllStoreCommands requires that each command with a store is among these.
func requireAllStoreCommands(t *testing.T, commands [][]string) {
	t.Helper()
	root := newRoot(terminal{})
	called := map[string]bool{}
	for _, args := range commands {
		found, _, err := root.Find(args)
		require.NoError(t, err)
		called[found.CommandPath()] = true
	}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Flags().Lookup("source") != nil {
			require.True(t, called[c.CommandPath()], c.CommandPath())
		}
		for _, member := range c.Commands() {
			look(member)
		}
	}
	look(root)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
