package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

// The mover consumes from watermill-sql and publishes to the outbox in the transaction in which
// watermill-sql notes the consumed messages.
const (
	stepVariable   = "OUTMILL_POSTGRES_TEST_STEP"
	sourceVariable = "OUTMILL_POSTGRES_TEST_SOURCE"

	source      = "legacy"
	onReceipt   = "received"
	afterAppend = "appended"
	afterAck    = "acked"
	never       = "never"
)

// killedAt is the message, counted from 0, at which a mover dies.
const killedAt = 2

func TestStore_Adopt(t *testing.T) {
	t.Parallel()

	t.Run("a message from watermill sql is published exactly once wherever the process dies", func(t *testing.T) {
		t.Parallel()
		for _, step := range []string{onReceipt, afterAppend, afterAck} {
			t.Run("after it was "+step, func(t *testing.T) {
				t.Parallel()
				url := readyDatabase(t, postgres.Config{})
				store, err := postgres.Open(t.Context(), url, postgres.Config{}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, store.Close()) }()
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				// Enough messages for three movers that die. Each may have moved the messages
				// that it acked.
				want := legacy(t, url, 3*(killedAt+1))

				for range 3 {
					require.False(t, mover(t, url, step).Success(), "the mover was to be killed")
				}
				require.True(t, mover(t, url, never).Success())

				require.Equal(t, want, messageIDs(claimed(t, store, claimOf(outmill.NewOwnerToken(), 100, outmill.OrderTopic))))
			})
		}
	})

	t.Run("adopting a transaction is a setting", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		std := stdlib.OpenDBFromPool(db)
		defer func() { require.NoError(t, std.Close()) }()
		type key struct{}
		adopting := newStore(t, db, postgres.Config{TxFromContext: postgres.Adopt(func(ctx context.Context) (*sql.Tx, bool) {
			tx, ok := ctx.Value(key{}).(*sql.Tx)
			return tx, ok
		})})
		require.NoError(t, adopting.Ensure(t.Context()))
		plain := newStore(t, db, postgres.Config{})

		tx, err := std.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx := context.WithValue(t.Context(), key{}, tx)
		require.NoError(t, adopting.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "within"}))
		require.NoError(t, plain.Append(ctx, &outmill.Record{Topic: "orders", MessageID: "beside"}))
		require.Equal(t, []string{"beside"}, listed(t, plain))
		found, err := adopting.TxOf(ctx)
		require.NoError(t, err)
		require.True(t, found == any(tx))
		require.NoError(t, tx.Rollback())
		require.Equal(t, []string{"beside"}, listed(t, plain))
	})
}

// legacy publishes messages like a program without Outmill.
func legacy(t *testing.T, url string, n int) []string {
	t.Helper()
	db := openSQL(t, url)
	pub, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{
		SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, nil)
	require.NoError(t, err)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
		require.NoError(t, pub.Publish(source, message.NewMessage(names[i], []byte(`{"n": 1}`))))
	}
	require.NoError(t, pub.Close())
	return names
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func messageIDs(records []*outmill.Record) []string {
	var names []string
	for _, r := range records {
		names = append(names, r.MessageID)
	}
	return names
}

// mover runs a mover that dies at the step, or ends when no messages are left.
func mover(t *testing.T, url, step string) *os.ProcessState {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), stepVariable+"="+step, sourceVariable+"="+url)
	out, err := cmd.CombinedOutput()
	if _, killed := err.(*exec.ExitError); err != nil && !killed { //nolint:errorlint // as Run returns it
		require.NoError(t, err)
	}
	require.NotEqual(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
	return cmd.ProcessState
}

// moveUntil is the process of a mover.
func moveUntil(step string) int {
	if err := move(context.Background(), step); err != nil {
		fmt.Println(err)
		return 2
	}
	return 0
}

func move(ctx context.Context, step string) error {
	url := os.Getenv(sourceVariable)
	store, err := postgres.Open(ctx, url, postgres.Config{TxFromContext: postgres.Adopt(watermillsql.TxFromContext)}, nil)
	if err != nil {
		return err
	}
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	sub, err := watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		ConsumerGroup: "mover", SchemaAdapter: watermillsql.DefaultPostgreSQLSchema{},
		OffsetsAdapter:   watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, nil)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(ctx, source)
	if err != nil {
		return err
	}
	for n := 0; ; {
		select {
		case msg := <-messages:
			if err := moveOne(msg, pub, n, step); err != nil {
				return err
			}
			n++
		case <-time.After(100 * time.Millisecond):
			if done, err := allMoved(ctx, db, store); err != nil || done {
				return errors.Join(err, sub.Close())
			}
		}
	}
}

func allMoved(ctx context.Context, db *sql.DB, store *postgres.Store) (bool, error) {
	var published int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM watermill_`+source).Scan(&published); err != nil {
		return false, err
	}
	moved, err := store.List(ctx, outmill.ListQuery{Limit: published + 1})
	return len(moved) >= published, err
}

func moveOne(msg *message.Message, pub *publisher.Publisher, n int, step string) error {
	dieIf(n == killedAt && step == onReceipt)
	copied := message.NewMessage(msg.UUID, msg.Payload)
	copied.SetContext(msg.Context())
	if err := pub.Publish("moved", copied); err != nil {
		return err
	}
	dieIf(n == killedAt && step == afterAppend)
	msg.Ack()
	dieIf(n == killedAt && step == afterAck)
	return nil
}

// dieIf is a kill -9: no deferred function runs.
func dieIf(now bool) {
	if now {
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}
}

func listed(t *testing.T, store outmill.Inspector) []string {
	t.Helper()
	found, err := store.List(t.Context(), outmill.ListQuery{Limit: 10_000})
	require.NoError(t, err)
	names := messageIDs(found)
	slices.Sort(names)
	return names
}
