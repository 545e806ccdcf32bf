package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("the events of outbox event bus become messages", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.load("outbox-event-bus.json", "outbox_events")
		lines, err := w.tool(t.Context(), w.events()...)
		require.NoError(t, err)
		require.Regexp(t, `^moved=3 repeated=0 leased=0 dead=1 malformed=0 seconds=`, last(lines))

		records := w.records()
		created := of("user.created", records)
		require.Equal(t, []string{"7f0c2a52-0f3f-4a44-8ce3-0a4f9e1f6a01", "7f0c2a52-0f3f-4a44-8ce3-0a4f9e1f6a02"}, ids(created))
		require.Equal(t, `{"userId":"u1","born":"2000-02-29T00:00:00.000Z","ref":"5f9d88b3e1b2c3d4e5f60718","logins":3,"score":0.5,"tags":["a",null,true],"big":9007199254740993}`, string(created[0].Payload))
		require.Equal(t, map[string]string{"type": "user.created", "occurred_at": "2026-11-21T16:10:01Z"}, created[0].Metadata)
		renamed := of("user.renamed", records)
		require.Len(t, renamed, 1)
		require.Equal(t, `{"userId":"u1","name":"Zoë & Co <x>"}`, string(renamed[0].Payload))
		require.Len(t, records, 3)
		// The tool leaves done and dead documents.
		require.Equal(t, []string{"completed", "failed"}, w.statuses("outbox_events", "status"))
		require.Equal(t, 2, w.count("outbox_events"))
	})

	t.Run("the entries of koan become messages", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.load("koan.json", "Outbox")
		lines, err := w.tool(t.Context(), w.entries()...)
		require.NoError(t, err)
		require.Regexp(t, `^moved=3 repeated=0 leased=0 dead=1 malformed=0 seconds=`, last(lines))

		records := w.records()
		orders := of("Shop.Order", records)
		require.Equal(t, []string{"019aa6c05b7e7b0d9a53d3c1f5a3e801", "019aa6c05b7e7b0d9a53d3c1f5a3e803"}, ids(orders))
		first, second := orders[0], orders[1]
		require.Equal(t, `{"Id":"o-1","Cents":990}`, string(first.Payload))
		require.Equal(t, []string{"o-1", "o-1"}, []string{first.Key, second.Key})
		require.Equal(t, []string{"o-1/1", "o-1/3"}, []string{first.DedupKey, second.DedupKey})
		require.Equal(t, map[string]string{"entity_type": "Shop.Order", "operation": "Upsert", "entity_id": "o-1",
			"occurred_at": "2025-11-21T16:10:01Z"}, first.Metadata)
		require.Equal(t, "north", second.Metadata["tenant"])
		customers := of("Shop.Customer", records)
		require.Len(t, customers, 1)
		require.Equal(t, "2025-11-21T16:10:02Z", customers[0].Metadata["occurred_at"])
		require.Equal(t, []string{"Dead", "Done"}, w.statuses("Outbox", "Status"))
	})

	t.Run("what is dead is moved where that is asked for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.load("outbox-event-bus.json", "outbox_events")
		w.load("koan.json", "Outbox")
		for _, args := range [][]string{w.events(), w.entries()} {
			lines, err := w.tool(t.Context(), append(args, "-dead")...)
			require.NoError(t, err)
			require.Regexp(t, `^moved=4 repeated=0 leased=0 dead=0 `, last(lines))
		}
		require.Equal(t, []string{"completed"}, w.statuses("outbox_events", "status"))
		require.Equal(t, []string{"Done"}, w.statuses("Outbox", "Status"))
	})

	t.Run("what was moved is kept in an archive as it was", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		docs := w.load("koan.json", "Outbox")
		_, err := w.tool(t.Context(), append(w.entries(), "-archive", "Moved")...)
		require.NoError(t, err)
		require.Equal(t, 3, w.count("Moved"))
		var kept bson.D
		require.NoError(t, w.db.Collection("Moved").FindOne(t.Context(), bson.D{{Key: "_id", Value: docs[0][0].Value}}).Decode(&kept))
		require.Equal(t, docs[0], kept)
	})

	t.Run("topics and keys are made of fields", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.load("outbox-event-bus.json", "outbox_events")
		_, err := w.tool(t.Context(), append(w.events(), "-topic", "legacy.{type}", "-key", "user-{payload.userId}", "-dead")...)
		require.NoError(t, err)
		keys := map[string]string{}
		for _, r := range w.records() {
			keys[r.MessageID[len(r.MessageID)-2:]] = r.Topic + " " + r.Key
		}
		// A payload that is not a document has no such field, and therefore no key.
		require.Equal(t, map[string]string{"01": "legacy.user.created user-u1", "02": "legacy.user.created user-u2",
			"03": "legacy.user.renamed user-u1", "04": "legacy.user.deleted "}, keys)
	})

	t.Run("an event that an old worker has is waited for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		now := time.Now()
		w.insert("outbox_events", event("a", "active", now, now))
		lines, err := w.tool(t.Context(), append(w.events(), "-patience", "50ms")...)
		require.ErrorContains(t, err, "1 documents are still leased")
		require.Contains(t, last(lines), "moved=0 repeated=0 leased=1")

		// Its worker dies, and the time of its lease passes.
		_, err = w.db.Collection("outbox_events").UpdateMany(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "keepAlive", Value: now.Add(-time.Hour)}}}})
		require.NoError(t, err)
		_, err = w.tool(t.Context(), w.events()...)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, ids(w.records()))
	})

	t.Run("an entry that becomes visible later is due later", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.load("koan.json", "Outbox")
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		ticks := later.UnixMilli()*10_000 + ticksAtEpoch
		_, err := w.db.Collection("Outbox").UpdateMany(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "VisibleAt", Value: bson.A{ticks, int32(0)}}}}})
		require.NoError(t, err)
		_, err = w.tool(t.Context(), w.entries()...)
		require.NoError(t, err)
		require.Empty(t, w.records())
		var record struct {
			DueAt time.Time `bson:"due_at"`
		}
		require.NoError(t, w.db.Collection("outmill_records").FindOne(t.Context(), bson.D{}).Decode(&record))
		require.WithinDuration(t, later, record.DueAt, time.Millisecond)
	})

	t.Run("a document that cannot be moved stops the tool or is reported", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		for name, c := range map[string]struct {
			change bson.D
			want   string
		}{
			"an unknown status":        {bson.D{{Key: "status", Value: "paused"}}, "status is"},
			"no topic":                 {bson.D{{Key: "type", Value: nil}}, "the topic"},
			"no event id":              {bson.D{{Key: "eventId", Value: nil}}, "eventId"},
			"a topic that is too long": {bson.D{{Key: "type", Value: string(bytes.Repeat([]byte("x"), 300))}}, "topic"},
			"a payload that has no JSON": {bson.D{{Key: "payload", Value: bson.D{{Key: "S3CRET", Value: bson.Regex{Pattern: "S3CRET"}}}}},
				"has no JSON"},
			"a time that is none": {bson.D{{Key: "occurredAt", Value: "yesterday"}}, "occurredAt"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.insert("outbox_events", event("good", "created", now, now), event("bad", "created", now.Add(time.Second), now))
				_, err := w.db.Collection("outbox_events").UpdateOne(t.Context(), bson.D{{Key: "eventId", Value: "bad"}},
					bson.D{{Key: "$set", Value: c.change}})
				require.NoError(t, err)

				_, err = w.tool(t.Context(), w.events()...)
				require.ErrorIs(t, err, errMalformed)
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, `{"$oid":"`)
				require.Equal(t, 2, w.count("outbox_events"))

				lines, err := w.tool(t.Context(), append(w.events(), "-skip-malformed")...)
				require.ErrorContains(t, err, "1 documents could not be moved")
				require.Contains(t, lines[0], "skipped")
				require.Contains(t, last(lines), "moved=1 repeated=0 leased=0 dead=0 malformed=1")
				require.Equal(t, []string{"good"}, ids(w.records()))
				require.Equal(t, 1, w.count("outbox_events"))
			})
		}
	})

	t.Run("following moves what is written until it is stopped", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := w.tool(ctx, append(w.events(), "-follow")...)
			ended <- err
		}()
		for _, id := range []string{"a", "b"} {
			w.insert("outbox_events", event(id, "created", time.Now(), time.Now()))
			require.Eventually(t, func() bool { return w.count("outbox_events") == 0 }, 30*time.Second, 5*time.Millisecond)
		}
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, []string{"a", "b"}, ids(w.records()))
	})

	t.Run("wrong usage says what is wanted", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"nothing":        {nil, "-store is missing"},
			"no layout":      {[]string{"-store", "mongodb://host/x"}, "-layout wants koan or outbox-event-bus"},
			"another store":  {[]string{"-store", "sqlite::memory:", "-layout", "koan"}, "no registered store opens"},
			"a bad template": {[]string{"-store", "mongodb://host/x", "-layout", "koan", "-topic", "{"}, "-topic"},
			"nothing in it":  {[]string{"-store", "mongodb://host/x", "-layout", "koan", "-key", "a{}"}, "-key"},
			"an argument":    {[]string{"-store", "mongodb://host/x", "outbox"}, `"outbox"`},
			"an empty batch": {[]string{"-store", "mongodb://host/x", "-layout", "koan", "-batch", "0"}, "-batch"},
			"nothing listens": {[]string{"-store", "mongodb://me:S3CRET@127.0.0.1:1/x?serverSelectionTimeoutMS=100", "-layout", "koan"},
				"127.0.0.1"},
			"a wrong parameter": {[]string{"-store", "mongodb://me:S3CRET@host/x?retain=often", "-layout", "koan"}, "retain"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var out, errOut bytes.Buffer
				err := run(t.Context(), c.args, &out, &errOut)
				require.ErrorContains(t, err, c.want)
				require.NotContains(t, err.Error(), "S3CRET")
			})
		}
	})
}

// event is a document as the old program writes it.
func event(id, status string, at, keepAlive time.Time) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.NewObjectID()}, {Key: "eventId", Value: id}, {Key: "type", Value: "user.created"},
		{Key: "payload", Value: bson.D{{Key: "userId", Value: id}}}, {Key: "occurredAt", Value: at}, {Key: "status", Value: status},
		{Key: "retryCount", Value: 0}, {Key: "nextRetryAt", Value: at}, {Key: "expireInSeconds", Value: 60}, {Key: "keepAlive", Value: keepAlive},
	}
}
