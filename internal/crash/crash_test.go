//go:build outmill_crash

package crash_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	_ "github.com/outmill/outmill/mongo"
	_ "github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	_ "github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

const (
	// envStore names the environment variable that tells a child process its store.
	envStore = "OUTMILL_CRASH_STORE"
	messages = 5
	// patience is longer than MongoDB keeps the transaction of a dead process open (60 s).
	patience = 3 * time.Minute
	orders   = "orders"
	invoices = "invoices"
)

// steps has the steps of the inbox, in their order.
var steps = []string{"delivered", "begun", "noted", "handled", "published", "committed"}

func TestMain(m *testing.M) {
	if address := os.Getenv(envStore); address != "" {
		work := consume
		if os.Getenv(envSagas) != "" {
			work = handleSagas
		}
		if os.Getenv(envRepair) != "" {
			work = repair
		}
		if err := onStore(address, work); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// onStore opens the store of a child process for its work.
func onStore(address string, work func(ctx context.Context, store outmill.Store) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := outmill.Open(ctx, address, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return work(ctx, store)
}

// consume handles orders until none is left, and publishes an invoice for each.
func consume(ctx context.Context, store outmill.Store) error {
	pub, err := publisher.New(store, publisher.Config{}, nil)
	if err != nil {
		return err
	}
	box, err := inbox.New(store, inbox.Config{Consumer: "billing", Publisher: pub, MaxProcessing: 10 * time.Second})
	if err != nil {
		return err
	}
	sub, err := subscriber.New(store, subscriber.Config{
		Lease: time.Second, PollInterval: 20 * time.Millisecond,
		Retry: outmill.RetryPolicy{MaxAttempts: -1, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
	}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(subscriber.KeepError, box.Middleware)
	router.AddHandler("billing", orders, sub, invoices, pub, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("invoice of "+msg.UUID, nil)}, nil
	})
	go func() {
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for range look.C {
			if left, err := store.List(ctx, outmill.ListQuery{Content: true, Topic: orders}); err == nil && len(left) == 0 {
				_ = router.Close()
				return
			}
			if ctx.Err() != nil {
				return
			}
		}
	}()
	return router.Run(ctx)
}

// engines has a function for each engine that makes an empty database.
var engines = map[string]func(t *testing.T) string{
	"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "crash.db") },
	"PostgreSQL": func(t *testing.T) string { return postgrestest.Database(t) },
	"MongoDB":    inMongo,
}

func TestInbox(t *testing.T) {
	t.Parallel()
	for name, address := range engines {
		for _, step := range steps {
			t.Run("has each effect once after a crash on "+name+" at the step "+step, func(t *testing.T) {
				t.Parallel()
				survives(t, address(t), killed(step+":2"))
			})
			t.Run("has each effect once on "+name+" where a process was stopped past its lease at the step "+step, func(t *testing.T) {
				t.Parallel()
				survives(t, address(t), stopped(step+":2", orders, name == "SQLite"))
			})
		}
	}
}

func inMongo(t *testing.T) string {
	t.Helper()
	return mongoAddress(t, mongotest.Server(t), mongotest.Database(t).Name())
}

func mongoAddress(t *testing.T, server, database string) string {
	t.Helper()
	address, err := url.Parse(server)
	require.NoError(t, err)
	address.Path = "/" + database
	return address.String()
}

// interruption handles everything in child processes, of which the first is interrupted.
type interruption func(t *testing.T, store outmill.Store, address string, env ...string)

// killed kills the first process at the step.
func killed(at string) interruption {
	return func(t *testing.T, _ outmill.Store, address string, env ...string) {
		t.Helper()
		var exit *exec.ExitError
		require.ErrorAs(t, child(t, address, append(env, crash.EnvAt+"="+at)...), &exit, "the process was to end at the step")
		require.Equal(t, -1, exit.ExitCode(), "no exit, but a signal")
		require.NoError(t, child(t, address, env...))
	}
}

// survives handles orders, which are the steps of a join.
func survives(t *testing.T, address string, interrupted interruption) {
	t.Helper()
	store, err := outmill.Open(t.Context(), address, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{orders}}}))
	joins, ok := outmill.As[roles.Joins](store)
	require.True(t, ok)
	join := &roles.Join{ExpectedSteps: messages}
	require.NoError(t, joins.StartJoin(t.Context(), join))
	var want []string
	for i := range messages {
		uuid := fmt.Sprint("order ", i)
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: orders, MessageID: uuid, Joins: []outmill.JoinID{join.ID}}))
		want = append(want, "invoice of "+uuid)
	}
	interrupted(t, store, address)
	require.ElementsMatch(t, want, sentTo(t, store, invoices))
	ended, err := joins.GetJoin(t.Context(), join.ID)
	require.NoError(t, err)
	require.Equal(t, []int{messages, 0}, []int{ended.CompletedSteps, ended.FailedSteps}, "steps completed, failed")
}

func child(t *testing.T, address string, env ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), envStore+"="+address), env...)
	output, err := cmd.CombinedOutput()
	t.Log(string(output))
	return err
}
