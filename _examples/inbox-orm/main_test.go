package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/_examples/internal/exampletest"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/subscriber"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestInboxORM(t *testing.T) {
	t.Parallel()
	const line = ": the book that was ordered twice is sold once, the yacht is rolled back\n"
	exampletest.TestOnSQL(t, run,
		"gorm"+line+"bun"+line+"sqlx"+line+"sqlc"+line+"ent"+line+"OK: each order was handled once, or not at all\n")
}

func TestInboxORM_Libraries(t *testing.T) {
	t.Parallel()
	exampletest.EachSQL(t, func(t *testing.T, db *example.SQL) {
		libraries, err := open(t.Context(), db)
		require.NoError(t, err)
		for _, l := range libraries {
			t.Run("with "+l.name, func(t *testing.T) { testLibrary(t, db, l) })
		}
	})
}

// testLibrary handles messages in an inbox in transactions of the library.
func testLibrary(t *testing.T, db *example.SQL, l library) {
	t.Helper()
	box, err := inbox.New(db.Store, inbox.Config{Consumer: l.name})
	require.NoError(t, err)
	// handle calls inside before the end of the transaction.
	handle := func(msg *message.Message, inside func(), h message.HandlerFunc) error {
		within, err := inbox.Within(db.Store, func(ctx context.Context, fn func(ctx context.Context) error) error {
			return l.transact(ctx, func(ctx context.Context) error {
				err := fn(ctx)
				inside()
				return err
			})
		})
		require.NoError(t, err)
		_, err = within(box.Middleware(h))(msg)
		return err
	}
	named := func(name string) *message.Message { return message.NewMessage(l.name+" "+name, nil) }
	sell := func(msg *message.Message) ([]*message.Message, error) { return nil, l.sell(msg.Context(), msg.UUID) }
	sold := func(name string) bool {
		list, err := example.Sold(t.Context(), db.DB)
		require.NoError(t, err)
		return slices.Contains(list, l.name+" "+name)
	}
	unseen := func(name string) func() { return func() { require.False(t, sold(name), "it is committed too early") } }

	// A duplicate that is handled again would break the unique item.
	for range 2 {
		require.NoError(t, handle(named("twice"), func() {}, sell))
	}
	require.True(t, sold("twice"))

	boom := errors.New("boom")
	require.Equal(t, boom, handle(named("failing"), unseen("failing"), func(msg *message.Message) ([]*message.Message, error) {
		require.NoError(t, l.sell(msg.Context(), msg.UUID))
		return nil, boom
	}))
	require.Panics(t, func() {
		_ = handle(named("failing"), func() {}, func(msg *message.Message) ([]*message.Message, error) {
			require.NoError(t, l.sell(msg.Context(), msg.UUID))
			panic("boom")
		})
	})
	require.False(t, sold("failing"))
	require.NoError(t, handle(named("failing"), unseen("failing"), sell))
	require.True(t, sold("failing"))

	// The ack of a message of a subscriber on the same store follows the commit.
	sub, err := subscriber.New(db.Store, subscriber.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close()) }()
	topic := "orders of " + l.name
	waiting := func() int {
		records, err := db.Store.List(t.Context(), outmill.ListQuery{Topic: topic, Content: true})
		require.NoError(t, err)
		return len(records)
	}
	messages, err := sub.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, example.InTx(t.Context(), db.DB, func(tx *sql.Tx) error {
		return db.Publisher.WithContext(db.Store.WithTx(t.Context(), tx)).Publish(topic, named("delivered"))
	}))
	msg := <-messages
	require.NoError(t, handle(msg, func() { require.Equal(t, 1, waiting()) }, sell))
	require.Equal(t, 1, waiting())
	require.True(t, sold("delivered"))
	msg.Ack()
	require.Eventually(t, func() bool { return waiting() == 0 }, time.Minute, 10*time.Millisecond)
}
