package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type result struct {
	code           int
	stdout, stderr string
}

func outmillTool(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func TestCommand(t *testing.T) {
	t.Parallel()

	t.Run("help goes to standard output and succeeds", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"-h"}, {"--help"}, {"-help"}, {"help"}} {
			got := outmillTool(t.Context(), args...)
			require.Equal(t, exitOK, got.code, args)
			require.Empty(t, got.stderr)
			for _, c := range commands {
				require.Contains(t, got.stdout, "  "+c.name+" ")
				require.Contains(t, got.stdout, c.summary)
			}
		}
		for _, args := range [][]string{{"schema", "-h"}, {"schema", "--help"}, {"help", "schema"}, {"schema", "sqlite:x.db", "-h"}} {
			got := outmillTool(t.Context(), args...)
			require.Equal(t, exitOK, got.code, args)
			require.Empty(t, got.stderr)
			require.Contains(t, got.stdout, "usage: outmill schema [-ensure | -from VERSION] [-source NAME | URL]")
			require.Contains(t, got.stdout, "-ensure\n")
			require.Contains(t, got.stdout, "stores: mongo, postgres, sqlite, sqlserver")
		}
	})

	t.Run("wrong usage says how it is used on standard error", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			name string
			args []string
			want []string
		}{
			{"nothing", nil, []string{"usage: outmill COMMAND"}},
			{"an unknown command", []string{"schemas"}, []string{`no command "schemas"`, "usage: outmill COMMAND"}},
			{"help for an unknown command", []string{"help", "schemas"}, []string{`no command "schemas"`}},
			{"an unknown flag", []string{"schema", "-force", "sqlite:x.db"}, []string{"-force", "usage: outmill schema"}},
			{"no URL", []string{"schema", "-ensure"}, []string{"want one URL", "usage: outmill schema"}},
			{"two URLs", []string{"schema", "sqlite:a.db", "sqlite:b.db"}, []string{"want one URL", "got 2"}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				got := outmillTool(t.Context(), tc.args...)
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
		for _, args := range [][]string{{"-h"}, {"schema", "-h"}, {"schema", "sqlite::memory:"}, {"schema", "-ensure", "sqlite::memory:"}} {
			var stderr bytes.Buffer
			require.Equal(t, exitFailed, run(t.Context(), args, brokenWriter{}, &stderr), args)
		}
	})

	t.Run("the built tool exits with the code of the command", func(t *testing.T) {
		t.Parallel()
		binary := filepath.Join(t.TempDir(), "outmill.exe")
		build, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
		require.NoError(t, err, "%s", build)

		for _, tc := range []struct {
			args []string
			code int
		}{
			{[]string{"schema", "sqlite::memory:"}, exitOK},
			{[]string{"schema", "cassandra:x"}, exitFailed},
			{[]string{"nonsense"}, exitUsage},
		} {
			cmd := exec.CommandContext(t.Context(), binary, tc.args...)
			output, err := cmd.Output()
			require.Equal(t, tc.code, cmd.ProcessState.ExitCode(), "%v: %v", tc.args, err)
			require.Equal(t, tc.code == exitOK, strings.Contains(string(output), "CREATE TABLE"), "%s", output)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
