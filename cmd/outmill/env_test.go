package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// binary is the built tool, which the tests of commands run.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "outmill-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "outmill.exe")
	if output, err := exec.CommandContext(context.Background(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the tool: %v\n%s", err, output)
		os.Exit(1)
	}
	// goleak ends the process, so the directory goes before it reports.
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

type result struct {
	code           int
	stdout, stderr string
}

// outmillTool runs the tool in this process.
func outmillTool(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, terminal{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return result{code, stdout.String(), stderr.String()}
}

// tool runs the built tool. Its standard input is no terminal.
func tool(t *testing.T, args ...string) result {
	t.Helper()
	return toolWith(t, "", args...)
}

// toolWith runs the built tool with this standard input.
func toolWith(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	require.NotNil(t, cmd.ProcessState, "the tool did not start")
	require.NoError(t, ctx.Err(), "the tool did not end: %s", stderr.String())
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// ok runs the built tool, which must succeed, and returns its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	got := tool(t, args...)
	require.Equal(t, exitOK, got.code, "%v: %s", args, got.stderr)
	return got.stdout
}

// okJSON runs the built tool with -o json and decodes its output.
func okJSON[T any](t *testing.T, args ...string) (value T) {
	t.Helper()
	text := ok(t, append(args, "-o", "json")...)
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&value), text)
	return value
}

// world is a store that a test fills, at a URL that the tool opens too.
type world struct {
	outmill.Store
	url string
}

func newWorld(t *testing.T) world {
	t.Helper()
	return openWorld(t, "sqlite:"+newFile(t))
}

func openWorld(t *testing.T, url string) world {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	store, err := outmill.Open(ctx, url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(ctx))
	return world{store, url}
}

// onStores runs a test on SQLite and on PostgreSQL.
func onStores(t *testing.T, test func(t *testing.T, w world)) {
	t.Helper()
	t.Run("on SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t))
	})
	t.Run("on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, openWorld(t, postgrestest.Database(t)))
	})
}

// onThreeStores is onStores, and also runs the test on MongoDB.
func onThreeStores(t *testing.T, test func(t *testing.T, w world)) {
	t.Helper()
	onStores(t, test)
	t.Run("on MongoDB", func(t *testing.T) {
		t.Parallel()
		test(t, openWorld(t, urlOf(t, mongotest.Database(t))))
	})
}

func (w world) register(t *testing.T, group string, topics ...string) {
	t.Helper()
	registration := outmill.Registration{Group: group, Topics: outmill.Topics{Include: topics}, Worker: "test:1"}
	require.NoError(t, w.RegisterGroup(t.Context(), registration))
}

func (w world) append(t *testing.T, records ...*outmill.Record) {
	t.Helper()
	require.NoError(t, w.Append(t.Context(), records...))
}

// kill makes all due records of the group and topic dead, with this error.
func (w world) kill(t *testing.T, group, topic, reason string) (killed int) {
	t.Helper()
	owner := outmill.NewOwnerToken()
	for {
		records, err := w.Claim(t.Context(), outmill.ClaimRequest{
			Owner: owner, Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: 5000, Lease: time.Minute,
		})
		require.NoError(t, err)
		if len(records) == 0 {
			return killed
		}
		settlements := make([]outmill.Settlement, len(records))
		for i, r := range records {
			settlements[i] = outmill.Settlement{Lease: r.Lease(), Err: reason}
		}
		require.NoError(t, w.Fail(t.Context(), settlements))
		killed += len(records)
	}
}

// statusOf counts the records of the group and topic.
func (w world) statusOf(t *testing.T, group, topic string) outmill.TopicStats {
	t.Helper()
	stats, err := w.Stats(t.Context(), 1_000_000)
	require.NoError(t, err)
	for _, s := range stats {
		if s.Group == group && s.Topic == topic {
			return s
		}
	}
	return outmill.TopicStats{}
}

// orders makes records of the topic orders.
func orders(n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", Payload: []byte(`{"secret":"S3CRET"}`)}
	}
	return records
}
