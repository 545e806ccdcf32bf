package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	wforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// old is a database with the tables of watermill-sql, which its own publisher and
// subscriber make.
type old struct {
	url     string
	db      *sql.DB
	schema  wsql.SchemaAdapter
	offsets wsql.OffsetsAdapter
}

// newOld is on PostgreSQL.
func newOld(t *testing.T, topic, group string) old {
	t.Helper()
	o := old{url: postgrestest.Database(t), schema: wsql.DefaultPostgreSQLSchema{}, offsets: wsql.DefaultPostgreSQLOffsetsAdapter{}}
	var err error
	o.db, err = sql.Open("pgx", o.url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.db.Close()) })
	return o.withTables(t, topic, group)
}

// withTables has a subscriber make the tables.
func (o old) withTables(t *testing.T, topic, group string) old {
	t.Helper()
	sub := o.subscriber(t, group)
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := sub.Subscribe(ctx, topic)
	require.NoError(t, err)
	cancel()
	for range messages {
		t.Error("a message in an empty table")
	}
	require.NoError(t, sub.Close())
	return o
}

func (o old) subscriber(t *testing.T, group string) *wsql.Subscriber {
	t.Helper()
	sub, err := wsql.NewSubscriber(o.db, wsql.SubscriberConfig{
		ConsumerGroup: group, SchemaAdapter: o.schema, OffsetsAdapter: o.offsets,
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	return sub
}

func (o old) publisher(t *testing.T) message.Publisher {
	t.Helper()
	pub, err := wsql.NewPublisher(o.db, wsql.PublisherConfig{SchemaAdapter: o.schema}, nil)
	require.NoError(t, err)
	return pub
}

// fill publishes n messages with the ids prefix-0 and so on.
func (o old) fill(t *testing.T, topic, prefix string, n int) (ids []string) {
	t.Helper()
	messages := make([]*message.Message, n)
	for i := range messages {
		ids = append(ids, fmt.Sprintf("%s-%d", prefix, i))
		messages[i] = message.NewMessage(ids[i], []byte(`{"n":1}`))
		messages[i].Metadata.Set("customer", fmt.Sprint(i%3))
	}
	pub := o.publisher(t)
	for chunk := 0; chunk < n; chunk += 1000 {
		require.NoError(t, pub.Publish(topic, messages[chunk:min(chunk+1000, n)]...))
	}
	return ids
}

// messagesOf returns the message ids of a topic in the order of the store.
func (w world) messagesOf(t *testing.T, topic string) (ids []string) {
	t.Helper()
	records, err := w.List(t.Context(), outmill.ListQuery{Topic: topic, Limit: 100_000, Content: true})
	require.NoError(t, err)
	for _, r := range records {
		ids = append(ids, r.MessageID)
	}
	return ids
}

func TestImportWatermillSQL(t *testing.T) {
	t.Parallel()

	t.Run("it moves what the group has not read, in order, with keys, and a second run moves nothing", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			o := newOld(t, "orders", "billing")
			o.fill(t, "orders", "read", 5)
			o.readAll(t, "orders", "billing", 5)
			ids := o.fill(t, "orders", "waits", 25)
			args := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders", "--consumer-group", "billing",
				"--key-from", "customer", "--batch-size", "10"}
			require.Equal(t, "25 messages would be moved.\n", ok(t, append(args, "--dry-run")...))
			require.Empty(t, w.messagesOf(t, "orders"))
			require.Equal(t, imported{Moved: 25}, okJSON[imported](t, args...))
			require.Equal(t, ids, w.messagesOf(t, "orders"))
			record := okJSON[listReport](t, "list", w.url, "--message-id", "waits-4", "--payload").Records[0]
			require.Equal(t, []string{"1", `{"n":1}`}, []string{record.Key, *record.Payload})
			require.Equal(t, "0 messages moved.\n", ok(t, args...))

			more := o.fill(t, "orders", "more", 3)
			require.Equal(t, "3 messages moved.\n", ok(t, args...))
			require.Equal(t, append(ids, more...), w.messagesOf(t, "orders"))
		})
	})

	t.Run("Watermill's delays of the rows are for the operator to judge", func(t *testing.T) {
		t.Parallel()
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		for _, mode := range []string{"", "keep", "ignore"} {
			w, o := newWorld(t), newOld(t, "orders", "billing")
			first, late := message.NewMessage("first", nil), message.NewMessage("late", nil)
			delay.Message(first, delay.Until(time.Now().Add(-time.Hour)))
			delay.Message(late, delay.Until(until))
			require.NoError(t, o.publisher(t).Publish("orders", first, late))
			args := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders", "--consumer-group", "billing"}
			if mode != "" {
				args = append(args, "--delays", mode)
			} else {
				got := tool(t, args...)
				require.Equal(t, exitFailed, got.code)
				require.Contains(t, got.stderr, `the uuid "late"`)
				require.Contains(t, got.stderr, "--delays keep")
				require.Equal(t, []string{"first"}, w.messagesOf(t, "orders"))
				continue
			}
			require.Equal(t, imported{Moved: 2}, okJSON[imported](t, args...))
			records, err := w.List(t.Context(), outmill.ListQuery{Topic: "orders", Content: true})
			require.NoError(t, err)
			moved := records[1]
			require.Equal(t, mode == "keep", moved.DueAt.Equal(until), "due at %s", moved.DueAt)
			require.Equal(t, mode == "ignore", moved.Metadata[delay.DelayedUntilKey] != "")
		}
		require.Contains(t, tool(t, "import", "watermill-sql", "sqlite:x.db", "--from", "postgres://h/d", "--topic", "t", "--delays", "x").stderr,
			`--delays is "x": want keep or ignore`)
	})

	t.Run("a kill between the append and the note in the source doubles nothing", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "orders", "billing")
		ids := o.fill(t, "orders", "m", 20)
		args := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders", "--consumer-group", "billing"}
		require.Equal(t, "20 messages moved.\n", ok(t, args...))
		// What the source knows after such a kill.
		_, err := o.db.ExecContext(t.Context(), `UPDATE watermill_offsets_orders SET offset_acked = 0, last_processed_transaction_id = '0'`)
		require.NoError(t, err)
		require.Equal(t, imported{Known: 20}, okJSON[imported](t, args...))
		require.Equal(t, ids, w.messagesOf(t, "orders"))
	})

	t.Run("a run that is killed in the middle can be repeated: none is lost and none doubled", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "orders", "billing")
		ids := o.fill(t, "orders", "m", 20_000)
		args := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders", "--consumer-group", "billing",
			"--batch-size", "5"}
		first := exec.CommandContext(t.Context(), binary, args...)
		require.NoError(t, first.Start())
		require.Eventually(t, func() bool { return w.statusOf(t, "", "orders").Pending > 100 }, time.Minute, time.Millisecond)
		require.NoError(t, first.Process.Kill())
		require.Error(t, first.Wait())
		require.Less(t, w.statusOf(t, "", "orders").Pending, 20_000, "the kill came too late to be one in the middle")
		ok(t, append(args, "--batch-size", "1000")...)
		require.Equal(t, ids, w.messagesOf(t, "orders"))
	})

	t.Run("messages behind an open transaction are waited for, and named when it does not end", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "orders", "")
		older, err := o.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = older.ExecContext(t.Context(), `SELECT pg_current_xact_id()`)
		require.NoError(t, err)
		ids := o.fill(t, "orders", "m", 3)
		args := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders"}
		got := tool(t, append(args, "--wait", "0s")...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "3 committed messages wait until older transactions of the server end")
		require.Empty(t, w.messagesOf(t, "orders"))
		require.NoError(t, older.Rollback())
		require.Equal(t, "3 messages moved.\n", ok(t, args...))
		require.Equal(t, ids, w.messagesOf(t, "orders"))
	})

	t.Run("envelopes of Watermill's forwarder are unwrapped to their topics", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "outbox", "")
		pub := wforwarder.NewPublisher(o.publisher(t), wforwarder.PublisherConfig{ForwarderTopic: "outbox"})
		require.NoError(t, pub.Publish("orders", message.NewMessage("m1", []byte("one"))))
		require.NoError(t, pub.Publish("payments", message.NewMessage("m2", []byte("two"))))
		require.Equal(t, "2 messages moved.\n", ok(t, "import", "watermill-sql", "--wait", "100s", w.url,
			"--from", o.url, "--topic", "outbox", "--enveloped"))
		require.Equal(t, []string{"m1"}, w.messagesOf(t, "orders"))
		require.Equal(t, []string{"m2"}, w.messagesOf(t, "payments"))
	})

	t.Run("a queue table is found by its columns, and its rows are marked as read", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "other", "")
		_, err := o.db.ExecContext(t.Context(), `CREATE TABLE watermill_jobs ("offset" SERIAL PRIMARY KEY, uuid VARCHAR(36) NOT NULL,
			payload JSON DEFAULT NULL, metadata JSON DEFAULT NULL, acked BOOLEAN NOT NULL DEFAULT FALSE,
			created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP);
			INSERT INTO watermill_jobs (uuid, payload, metadata, acked) VALUES
				('m1', '1', '{}', true), ('m2', '2', NULL, false), ('m3', '3', '{}', false)`)
		require.NoError(t, err)
		require.Equal(t, "2 messages moved.\n", ok(t, "import", "watermill-sql", "--wait", "100s", w.url,
			"--from", o.url, "--topic", "jobs", "--as", "work"))
		require.Equal(t, []string{"m2", "m3"}, w.messagesOf(t, "work"))
		var left int
		require.NoError(t, o.db.QueryRowContext(t.Context(), `SELECT count(*) FROM watermill_jobs WHERE NOT acked`).Scan(&left))
		require.Zero(t, left)
	})

	t.Run("a row that cannot be moved stops the move in front of it and is named", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "orders", "")
		o.fill(t, "orders", "m", 3)
		_, err := o.db.ExecContext(t.Context(), `UPDATE watermill_orders SET metadata = '["S3CRET"]' WHERE uuid = 'm-1'`)
		require.NoError(t, err)
		args := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url, "--topic", "orders"}
		got := tool(t, args...)
		require.Equal(t, exitFailed, got.code)
		require.Regexp(t, `row with the offset 2 and the uuid "m-1"`, got.stderr)
		require.Contains(t, got.stderr, "1 message moved before that")
		require.NotContains(t, got.stderr, "S3CRET")
		_, err = o.db.ExecContext(t.Context(), `UPDATE watermill_orders SET metadata = '{}' WHERE uuid = 'm-1'`)
		require.NoError(t, err)
		require.Equal(t, "2 messages moved.\n", ok(t, args...))
		require.Equal(t, []string{"m-0", "m-1", "m-2"}, w.messagesOf(t, "orders"))
	})

	t.Run("a group that has read nothing, a missing table and wrong flags are refused by name", func(t *testing.T) {
		t.Parallel()
		w, o := newWorld(t), newOld(t, "orders", "billing")
		o.fill(t, "orders", "m", 2)
		_, err := o.db.ExecContext(t.Context(), `CREATE TABLE watermill_unread (LIKE watermill_orders INCLUDING ALL)`)
		require.NoError(t, err)
		base := []string{"import", "watermill-sql", "--wait", "100s", w.url, "--from", o.url}
		for want, args := range map[string][]string{
			`"biling" has read nothing`:          {"--topic", "orders", "--consumer-group", "biling"},
			"check --topic":                      {"--topic", "order"},
			`call SubscribeInitialize("unread")`: {"--topic", "unread", "--from-start"},
		} {
			got := tool(t, append(base, args...)...)
			require.Equal(t, exitFailed, got.code, args)
			require.Contains(t, got.stderr, want)
		}
		require.Equal(t, "2 messages moved.\n", ok(t, append(base, "--topic", "orders", "--consumer-group", "new", "--from-start")...))
		for want, args := range map[string][]string{
			"--from is missing":  {w.url, "--topic", "orders"},
			"--topic is missing": {w.url, "--from", o.url},
			"postgres://":        {w.url, "--from", "oracle://me:S3CRET@host/db", "--topic", "orders"},
			"--as":               {w.url, "--from", o.url, "--topic", "orders", "--as", "x", "--enveloped"},
			"--wait":             {w.url, "--from", o.url, "--topic", "orders", "--wait", "-1s"},
			"--batch-size":       {w.url, "--from", o.url, "--topic", "orders", "--batch-size", "0"},
		} {
			got := tool(t, append([]string{"import", "watermill-sql"}, args...)...)
			require.Equal(t, exitUsage, got.code, args)
			require.Contains(t, got.stderr, want)
			require.NotContains(t, got.stderr, "S3CRET")
		}
	})

	t.Run("no password of the source is shown", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		cmd := exec.CommandContext(t.Context(), binary, "import", "watermill-sql", "--wait", "100s", w.url, "--topic", "orders")
		cmd.Env = append(os.Environ(), "OUTMILL_IMPORT_FROM=postgres://me:S3CRET@127.0.0.1:1/shop")
		output, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Regexp(t, regexp.QuoteMeta("127.0.0.1:1"), string(output))
		require.NotContains(t, string(output), "S3CRET")
	})
}

// readAll has watermill-sql's own subscriber read n messages.
func (o old) readAll(t *testing.T, topic, group string, n int) {
	t.Helper()
	sub := o.subscriber(t, group)
	messages, err := sub.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	for range n {
		(<-messages).Ack()
	}
	// The subscriber commits after the ack, and Close does not wait for it.
	require.Eventually(t, func() bool {
		var acked int
		query := fmt.Sprintf("SELECT offset_acked FROM watermill_offsets_%s WHERE consumer_group = '%s'", topic, group)
		err := o.db.QueryRowContext(t.Context(), query).Scan(&acked)
		return err == nil && acked == n
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, sub.Close())
}
