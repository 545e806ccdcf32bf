package main

import (
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/mysqltest"
)

func newOldMySQL(t *testing.T, topic, group string) old {
	t.Helper()
	o := old{url: mysqltest.Database(t), schema: wsql.DefaultMySQLSchema{}, offsets: wsql.DefaultMySQLOffsetsAdapter{}}
	o.db = mysqltest.Pool(t, o.url)
	return o.withTables(t, topic, group)
}

func TestImportWatermillSQL_MySQL(t *testing.T) {
	t.Parallel()
	moves := func(w world, o old, more ...string) []string {
		return append([]string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders"}, more...)
	}

	t.Run("it moves what the group has not read, in order, and neither a second run nor the old subscriber gets it", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOldMySQL(t, "orders", "billing")
		o.fill(t, "orders", "read", 5)
		o.readAll(t, "orders", "billing", 5)
		ids := o.fill(t, "orders", "waits", 25)
		args := moves(w, o, "--consumer-group", "billing", "--key-from", "customer", "--batch-size", "10")
		require.Equal(t, "25 messages would be moved.\n", ok(t, append(args, "--dry-run")...))
		require.Equal(t, imported{Moved: 25}, okJSON[imported](t, args...))
		require.Equal(t, ids, w.messagesOf(t, "orders"))
		require.Equal(t, "1", okJSON[listReport](t, "list", w.url, "--message-id", "waits-4").Records[0].Key)
		require.Equal(t, "0 messages moved.\n", ok(t, args...))

		o.fill(t, "orders", "old", 1)
		sub := o.subscriber(t, "billing")
		messages, err := sub.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		msg := <-messages
		require.Equal(t, "old-0", msg.UUID)
		msg.Ack()
		require.NoError(t, sub.Close())
	})

	t.Run("a kill between the append and the note in the source doubles nothing", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOldMySQL(t, "orders", "billing")
		ids := o.fill(t, "orders", "m", 20)
		args := moves(w, o, "--consumer-group", "billing", "--from-start")
		require.Equal(t, "20 messages moved.\n", ok(t, args...))
		// What the source knows after such a kill.
		_, err := o.db.ExecContext(t.Context(), `UPDATE watermill_offsets_orders SET offset_acked = 0`)
		require.NoError(t, err)
		require.Equal(t, imported{Known: 20}, okJSON[imported](t, args...))
		require.Equal(t, ids, w.messagesOf(t, "orders"))
	})

	t.Run("messages behind the row of an open transaction are waited for, and named when it does not end", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOldMySQL(t, "orders", "billing")
		open, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = open.ExecContext(t.Context(), `INSERT INTO watermill_orders (uuid, payload, metadata) VALUES ('first', '1', '{}')`)
		require.NoError(t, err)
		ids := o.fill(t, "orders", "m", 3)
		args := moves(w, o, "--consumer-group", "billing", "--from-start")
		got := tool(t, append(args, "--wait", "0s")...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "3 committed messages wait until older transactions of the server end")
		require.Empty(t, w.messagesOf(t, "orders"))
		require.NoError(t, open.Commit())
		require.Equal(t, "4 messages moved.\n", ok(t, args...))
		require.Equal(t, append([]string{"first"}, ids...), w.messagesOf(t, "orders"))
	})

	t.Run("a group that has read nothing, and a missing table, are refused by name", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOldMySQL(t, "orders", "billing")
		o.fill(t, "orders", "m", 1)
		o.readAll(t, "orders", "billing", 1)
		got := tool(t, moves(w, o, "--consumer-group", "biling")...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, `"biling" has read nothing`)
		got = tool(t, "import", "watermill-sql", w.url, "--from", o.url, "--topic", "order")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "check --topic")
		got = tool(t, "import", "watermill-sql", w.url, "--from", "mysql://me:S3CRET@127.0.0.1:1/shop", "--topic", "orders")
		require.Contains(t, got.stderr, "127.0.0.1:1")
		require.NotContains(t, got.stderr, "S3CRET")
	})
}
