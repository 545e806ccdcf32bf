package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

const (
	childFile    = "OUTMILL_TEST_FORWARD_FROM"
	childBrokers = "OUTMILL_TEST_FORWARD_TO"
)

// forwardUntilKilled is the child process.
func forwardUntilKilled(file, brokers string) (exitCode int) {
	go func() {
		// The parent process has ended.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := forwardFrom(file, strings.Split(brokers, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func forwardFrom(file string, brokers []string) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, file, sqlite.Config{}, nil)
	if err != nil {
		return err
	}
	pub, err := kafka.NewPublisher(kafka.Config{Brokers: brokers}, nil)
	if err != nil {
		return err
	}
	fwd, err := forwarder.New(store, &ending{Publisher: pub}, killable(), nil)
	if err != nil {
		return err
	}
	return fwd.Run(ctx)
}

// perKill is how many messages come between two kills. A child publishes fewer than are committed of them.
const (
	perKill  = 300
	perChild = 200
)

// ending publishes perChild records, and then waits for its end, so that a late kill is in the middle too.
type ending struct {
	*kafka.Publisher
	published atomic.Int64
}

func (e *ending) PublishesRaw(message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error {
	raw := e.Publisher.PublishesRaw(e.Publisher)
	return func(ctx context.Context, batch []roles.RawRecord) error {
		if e.published.Add(int64(len(batch))) > perChild {
			<-ctx.Done()
			return ctx.Err()
		}
		return raw(ctx, batch)
	}
}

// killable has short leases, so that the records of a dead process are due again soon, and
// small batches, so that the process dies during its work.
func killable() forwarder.Config {
	cfg := quick()
	cfg.BatchSize = 10
	cfg.Lease = time.Second
	return cfg
}

func TestForwarder_Kill(t *testing.T) {
	t.Parallel()

	t.Run("a forwarder that is killed again and again loses nothing", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.FakeWithoutAutoTopics(t).Addrs
		topic := kafkatest.CreateTopic(t, brokers, 3)
		file := filepath.Join(t.TempDir(), "outbox.db")
		store := openStore(t, file, sqlite.Config{})
		register(t, store)

		kills := testenv.Steps(2, 5)
		keys := []string{"a", "b", "c", ""}
		want := map[string][]string{}
		for kill := range kills {
			for i := range perKill {
				key := keys[i%len(keys)]
				id := nameOf("", key, kill*perKill+i)
				if commitOrNot(t, store, rec(topic, key, id), i%5 != 0) {
					want[key] = append(want[key], id)
				}
			}
			waiting := len(list(t, store, ""))
			child := startChild(t, file, brokers)
			require.Eventually(t, func() bool { return len(list(t, store, "")) < waiting-40 }, patience, tick, "the child forwards nothing")
			child.kill(t)
			require.NotEmpty(t, list(t, store, ""), "it must die in the middle")
		}
		start(t, store, ours(t, brokers), killable())
		requireEmpty(t, store)

		ids, byKey := inKafka(t, brokers, topic)
		var all []string
		for key, committed := range want {
			all = append(all, committed...)
			if key != "" {
				require.Equal(t, committed, byKey[key], "in the order of the key, by first appearance")
			}
		}
		slices.Sort(all)
		slices.Sort(ids)
		t.Logf("%d messages, %d in Kafka", len(all), len(ids))
		require.Equal(t, all, slices.Compact(ids), "all that was committed, and nothing that was rolled back")
	})
}

// commitOrNot appends the record in a transaction, and reports whether it committed the
// transaction.
func commitOrNot(t *testing.T, store *sqlite.Store, r *outmill.Record, commit bool) bool {
	t.Helper()
	rollback := errors.New("changed my mind")
	err := store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
		if err := store.Append(ctx, r); err != nil {
			return err
		}
		if !commit {
			return rollback
		}
		return nil
	})
	if commit {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, rollback)
	}
	return commit
}

type child struct {
	cmd  *exec.Cmd
	says *strings.Builder
}

func startChild(t *testing.T, file string, brokers []string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), says: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), childFile+"="+file, childBrokers+"="+strings.Join(brokers, ","))
	c.cmd.Stderr = c.says
	// The child ends with this process, because its standard input ends.
	_, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill(), c.says)
	err := c.cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.True(t, exit.Sys().(syscall.WaitStatus).Signaled(), "it ended by itself: %v: %s", err, c.says)
}
