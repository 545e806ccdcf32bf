package main

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("a plain topic is moved with ids payloads and metadata", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "")
		w.writePlain(t, "orders", ids("a", 30)...)

		output, err := runOnce(t, w.sourceArgs("-topic", "orders", "-batch", "7"))
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=30 repeated=0 skipped=0 left=0")
		require.Equal(t, ids("a", 30), w.outbox(t, "orders"))

		records, err := w.store.List(t.Context(), outmill.ListQuery{Topic: "orders", Limit: 1, Content: true})
		require.NoError(t, err)
		require.JSONEq(t, `{"secret of":"a/0000"}`, string(records[0].Payload))
		require.Equal(t, map[string]string{"customer": "a"}, records[0].Metadata)
		require.Empty(t, records[0].Key)

		output, err = runOnce(t, w.sourceArgs("-topic", "orders"))
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=0 repeated=0 skipped=0 left=0")
	})

	t.Run("enveloped messages are moved to the topics of their envelopes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "forwarder_topic", "")
		w.writeEnveloped(t, "forwarder_topic", "orders", ids("a", 10)...)
		w.writeEnveloped(t, "forwarder_topic", "payments", ids("b", 10)...)

		output, err := runOnce(t, w.sourceArgs("-topic", "forwarder_topic", "-enveloped"))
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=20 repeated=0 skipped=0 left=0")
		require.Equal(t, ids("a", 10), w.outbox(t, "orders"))
		require.Equal(t, ids("b", 10), w.outbox(t, "payments"))
		records, err := w.store.List(t.Context(), outmill.ListQuery{Topic: "payments", Limit: 1, Content: true})
		require.NoError(t, err)
		require.Equal(t, `{"secret of":"b/0000"}`, string(records[0].Payload))
		require.Equal(t, map[string]string{"customer": "b"}, records[0].Metadata)
	})

	t.Run("a queue is moved and its rows are marked and not deleted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createQueue(t, "jobs")
		w.writeQueue(t, "jobs", ids("a", 20)...)
		w.exec(t, `UPDATE watermill_jobs SET acked = true WHERE uuid = 'a/0003'`)

		output, err := runOnce(t, w.sourceArgs("-topic", "jobs", "-queue", "-batch", "6"))
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=19 repeated=0 skipped=0 left=0")
		require.Equal(t, slices.Delete(ids("a", 20), 3, 4), w.outbox(t, "jobs"))
		require.Equal(t, ids("a", 20), ask(t, w.db, `SELECT uuid FROM watermill_jobs WHERE acked ORDER BY "offset"`))
	})

	t.Run("a row of a queue that is committed late is not marked unmoved", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createQueue(t, "jobs")
		late, err := w.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = late.Rollback() }()
		publishOld(t, late, writerToQueue{}, "jobs", msg("late/0000"))
		w.writeQueue(t, "jobs", ids("a", 5)...)
		output, err := runOnce(t, w.sourceArgs("-topic", "jobs", "-queue"))
		require.NoError(t, err, output)
		require.NoError(t, late.Commit())
		output, err = runOnce(t, w.sourceArgs("-topic", "jobs", "-queue"))
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=1 repeated=0 skipped=0 left=0")
		require.Equal(t, append(ids("a", 5), "late/0000"), w.outbox(t, "jobs"))
	})

	t.Run("what the consumer group has acked is not moved again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "billing")
		w.createLog(t, "orders", "mail")
		w.writePlain(t, "orders", ids("a", 20)...)
		readOld(t, w, "orders", "billing", 8)

		output, err := runOnce(t, w.sourceArgs("-topic", "orders", "-consumer-group", "billing"))
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=12 repeated=0 skipped=0 left=0")
		require.Equal(t, ids("a", 20)[8:], w.outbox(t, "orders"))
		require.Equal(t, ids("a", 20), readOld(t, w, "orders", "mail", 20), "another group is as it was")
	})

	t.Run("flags that do not fit the tables are refused before anything is moved", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "billing")
		w.createQueue(t, "jobs")
		w.writePlain(t, "orders", "a/0000")
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"no source":            {[]string{"-source", "", "-topic", "orders"}, "-source is missing"},
			"no topic":             {nil, "-topic is missing"},
			"an argument too many": {[]string{"-topic", "orders", "jobs"}, "-topic jobs"},
			"a queue with a group": {[]string{"-topic", "jobs", "-queue", "-consumer-group", "x"}, "no consumer groups"},
			"an unknown group":     {[]string{"-topic", "orders", "-consumer-group", "biling"}, `(groups that have: ["billing"])`},
			"an unknown topic":     {[]string{"-topic", "oders"}, `there is no table "watermill_oders"`},
			"a queue for a log":    {[]string{"-topic", "jobs"}, "pass -queue"},
			"a log for a queue":    {[]string{"-topic", "orders", "-queue"}, "leave out -queue"},
			"no outbox":            {[]string{"-topic", "orders", "-consumer-group", "billing", "-schema", "nothing"}, "schema"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				output, err := runOnce(t, w.sourceArgs(c.args...))
				require.ErrorContains(t, err, c.want, output)
			})
		}
		t.Cleanup(func() { require.Empty(t, w.outbox(t, "orders")) })
	})

	t.Run("a topic that nobody has read is moved from its start when asked to", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "")
		w.exec(t, `DROP TABLE watermill_offsets_orders`)
		w.writePlain(t, "orders", ids("a", 3)...)
		_, err := runOnce(t, w.sourceArgs("-topic", "orders"))
		require.ErrorContains(t, err, "-from-start")
		output, err := runOnce(t, w.sourceArgs("-topic", "orders", "-from-start"))
		require.NoError(t, err, output)
		require.Equal(t, ids("a", 3), w.outbox(t, "orders"))
	})

	t.Run("a malformed envelope stops the tool and stays where it is", func(t *testing.T) {
		t.Parallel()
		for name, payload := range map[string]string{
			"no envelope":    `["secret"]`,
			"no destination": `{"uuid":"x","payload":"c2VjcmV0"}`,
			"an odd payload": `{"destination_topic":"orders","payload":"secret, not base64"}`,
			"a bad topic":    `{"destination_topic":" orders","uuid":"x"}`,
			"nothing":        `null`,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.createLog(t, "fwd", "")
				w.writeEnveloped(t, "fwd", "orders", "a/0000", "a/0001")
				w.in(t, func(tx *sql.Tx) bool {
					publishOld(t, tx, oldSchema, "fwd", message.NewMessage("the-broken-one", []byte(payload)))
					return true
				})
				w.writeEnveloped(t, "fwd", "orders", "a/0002")
				w.awaitReadable(t, "watermill_fwd")

				args := w.sourceArgs("-topic", "fwd", "-enveloped", "-batch", "2")
				output, err := runOnce(t, args)
				require.ErrorContains(t, err, `topic fwd, offset 3, uuid "the-broken-one"`)
				require.ErrorContains(t, err, "-skip-malformed")
				require.NotContains(t, err.Error(), "secret")
				requireReport(t, output, "topics=1 moved=2 repeated=0 skipped=0 left=2")
				require.Equal(t, ids("a", 2), w.outbox(t, "orders"))

				output, err = runOnce(t, append(args, "-skip-malformed"))
				require.NoError(t, err)
				require.Contains(t, output, `topic fwd, offset 3, uuid "the-broken-one": skipped`)
				requireReport(t, output, "topics=1 moved=1 repeated=0 skipped=1 left=0")
				require.Equal(t, ids("a", 3), w.outbox(t, "orders"))
				require.Equal(t, []string{"1"}, ask(t, w.db, `SELECT count(*)::text FROM watermill_fwd WHERE uuid = 'the-broken-one'`))
			})
		}
	})

	t.Run("a row whose metadata cannot be read is a malformed message", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createQueue(t, "jobs")
		w.exec(t, `INSERT INTO watermill_jobs (uuid, payload, metadata) VALUES ('broken', '{}', '["secret"]'), ('fine', '{}', NULL), ('null', NULL, 'null')`)
		output, err := runOnce(t, w.sourceArgs("-topic", "jobs", "-queue"))
		require.ErrorContains(t, err, `offset 1, uuid "broken"`, output)
		output, err = runOnce(t, w.sourceArgs("-topic", "jobs", "-queue", "-skip-malformed"))
		require.NoError(t, err)
		requireReport(t, output, "topics=1 moved=2 repeated=0 skipped=1 left=0")
		require.Equal(t, []string{"fine", "null"}, w.outbox(t, "jobs"))
		require.Equal(t, []string{"3"}, ask(t, w.db, `SELECT count(*)::text FROM watermill_jobs`), "the row is still there")
	})

	t.Run("what waits for an older transaction is left and not taken for drained", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "")
		older, err := w.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = older.Rollback() }()
		_, err = older.ExecContext(t.Context(), `SELECT pg_current_xact_id()`)
		require.NoError(t, err)
		w.writePlain(t, "orders", ids("a", 3)...)

		output, err := runOnce(t, w.sourceArgs("-topic", "orders", "-patience", "300ms"))
		require.ErrorContains(t, err, "3 messages are left and do not come: a transaction that is older than theirs is still open")
		requireReport(t, output, "topics=1 moved=0 repeated=0 skipped=0 left=3")

		tl := start(t, w.sourceArgs("-topic", "orders", "-once"))
		require.Eventually(t, func() bool { return len(tl.says.String()) > 0 }, patience, tick)
		require.NoError(t, older.Rollback())
		require.NoError(t, <-tl.ended)
		require.Equal(t, ids("a", 3), w.outbox(t, "orders"))
	})

	t.Run("a message that was published with a delay is due when it was meant to be", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "orders", "")
		until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		w.in(t, func(tx *sql.Tx) bool {
			m := msg("a/0000")
			m.Metadata.Set(delay.DelayedForKey, "2h0m0s")
			m.Metadata.Set(delay.DelayedUntilKey, until.Format(time.RFC3339))
			publishOld(t, tx, oldSchema, "orders", m)
			return true
		})
		_, err := runOnce(t, w.sourceArgs("-topic", "orders"))
		require.NoError(t, err)
		records, err := w.store.List(t.Context(), outmill.ListQuery{Topic: "orders", Content: true})
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Equal(t, until, records[0].DueAt.UTC())
	})

	t.Run("a database is recognised whatever its url", func(t *testing.T) {
		t.Parallel()
		w, other := newWorld(t), newWorld(t)
		for _, c := range []struct {
			store string
			want  bool
		}{{w.url, true}, {otherURL(t, w), true}, {other.url, false}} {
			store, err := postgres.Open(context.WithoutCancel(t.Context()), c.store, postgres.Config{}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			same, err := sameDatabase(t.Context(), w.db, store.Pool())
			require.NoError(t, err)
			require.Equal(t, c.want, same)
		}
	})

	t.Run("a message that was published twice arrives twice in another database", func(t *testing.T) {
		t.Parallel()
		w, other := newWorld(t), newWorld(t)
		w.createLog(t, "orders", "")
		w.writePlain(t, "orders", "a/0000", "a/0000", "a/0001")
		args := w.sourceArgs("-store", other.url, "-topic", "orders")
		output, err := runOnce(t, args)
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=3 repeated=0 skipped=0 left=0")
		require.Equal(t, []string{"a/0000", "a/0000", "a/0001"}, other.outbox(t, "orders"))

		w.exec(t, `UPDATE watermill_offsets_orders SET offset_acked = 0, last_processed_transaction_id = '0'`)
		output, err = runOnce(t, args)
		require.NoError(t, err, output)
		requireReport(t, output, "topics=1 moved=0 repeated=3 skipped=0 left=0")
		require.Len(t, other.outbox(t, "orders"), 3)
	})
}

// readOld reads and acks n messages with watermill-sql's own subscriber.
func readOld(t *testing.T, w *world, topic, group string, n int) []string {
	t.Helper()
	sub, err := wsql.NewSubscriber(w.db, wsql.SubscriberConfig{
		ConsumerGroup: group, SchemaAdapter: wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1},
		OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, PollInterval: tick,
	}, nil)
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	var read []string
	for range n {
		m := <-messages
		read = append(read, m.UUID)
		m.Ack()
	}
	want := read[n-1]
	require.Eventually(t, func() bool {
		acked := ask(t, w.db, `SELECT m.uuid FROM "watermill_`+topic+`" m JOIN "watermill_offsets_`+topic+`" o
			ON m."offset" = o.offset_acked WHERE o.consumer_group = $1`, group)
		return slices.Equal(acked, []string{want})
	}, patience, tick)
	require.NoError(t, sub.Close())
	return read
}
