package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestImportMongo(t *testing.T) {
	t.Parallel()

	t.Run("the events of outbox event bus become messages", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.load("outbox-event-bus.json", "outbox_events")
		lines, err := w.tool(t.Context(), w.events()...)
		require.NoError(t, err)
		require.Regexp(t, `^moved=3 repeated=0 leased=0 dead=1 malformed=0`, lastLine(lines))

		records := w.records()
		created := ofTopic("user.created", records)
		require.Equal(t, []string{"7f0c2a52-0f3f-4a44-8ce3-0a4f9e1f6a01", "7f0c2a52-0f3f-4a44-8ce3-0a4f9e1f6a02"}, messageIDs(created))
		require.Equal(t, `{"userId":"u1","born":"2000-02-29T00:00:00.000Z","ref":"5f9d88b3e1b2c3d4e5f60718","logins":3,"score":0.5,`+
			`"tags":["a",null,true],"big":9007199254740993}`, string(created[0].Payload))
		require.Equal(t, map[string]string{"type": "user.created", "occurred_at": "2026-11-21T16:10:01Z"}, created[0].Metadata)
		renamed := ofTopic("user.renamed", records)
		require.Len(t, renamed, 1)
		require.Equal(t, `{"userId":"u1","name":"Zoë & Co <x>"}`, string(renamed[0].Payload))
		require.Len(t, records, 3)
		// The tool leaves done and dead documents.
		require.Equal(t, []string{"completed", "failed"}, w.statuses("outbox_events", "status"))
		require.Equal(t, 2, w.count("outbox_events"))
	})

	t.Run("the entries of koan become messages", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.load("koan.json", "Outbox")
		lines, err := w.tool(t.Context(), w.entries()...)
		require.NoError(t, err)
		require.Regexp(t, `^moved=3 repeated=0 leased=0 dead=1 malformed=0`, lastLine(lines))

		records := w.records()
		orders := ofTopic("Shop.Order", records)
		require.Equal(t, []string{"019aa6c05b7e7b0d9a53d3c1f5a3e801", "019aa6c05b7e7b0d9a53d3c1f5a3e803"}, messageIDs(orders))
		first, second := orders[0], orders[1]
		require.Equal(t, `{"Id":"o-1","Cents":990}`, string(first.Payload))
		require.Equal(t, []string{"o-1", "o-1"}, []string{first.Key, second.Key})
		require.Equal(t, []string{"o-1/1", "o-1/3"}, []string{first.DedupKey, second.DedupKey})
		require.Equal(t, map[string]string{"entity_type": "Shop.Order", "operation": "Upsert", "entity_id": "o-1",
			"occurred_at": "2025-11-21T16:10:01Z"}, first.Metadata)
		require.Equal(t, "north", second.Metadata["tenant"])
		customers := ofTopic("Shop.Customer", records)
		require.Len(t, customers, 1)
		require.Equal(t, "2025-11-21T16:10:02Z", customers[0].Metadata["occurred_at"])
		require.Equal(t, []string{"Dead", "Done"}, w.statuses("Outbox", "Status"))
	})

	t.Run("what is dead is moved where that is asked for", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.load("outbox-event-bus.json", "outbox_events")
		w.load("koan.json", "Outbox")
		for _, args := range [][]string{w.events(), w.entries()} {
			lines, err := w.tool(t.Context(), append(args, "--dead")...)
			require.NoError(t, err)
			require.Regexp(t, `^moved=4 repeated=0 leased=0 dead=0 `, lastLine(lines))
		}
		require.Equal(t, []string{"completed"}, w.statuses("outbox_events", "status"))
		require.Equal(t, []string{"Done"}, w.statuses("Outbox", "Status"))
	})

	t.Run("what was moved is kept in an archive as it was", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		docs := w.load("koan.json", "Outbox")
		_, err := w.tool(t.Context(), append(w.entries(), "--archive", "Moved")...)
		require.NoError(t, err)
		require.Equal(t, 3, w.count("Moved"))
		var kept bson.D
		require.NoError(t, w.db.Collection("Moved").FindOne(t.Context(), bson.D{{Key: "_id", Value: docs[0][0].Value}}).Decode(&kept))
		require.Equal(t, docs[0], kept)
	})

	t.Run("topics and keys are made of fields", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.load("outbox-event-bus.json", "outbox_events")
		_, err := w.tool(t.Context(), append(w.events(), "--topic", "legacy.{type}", "--key", "user-{payload.userId}", "--dead")...)
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
		w := newOldMongo(t)
		now := time.Now()
		w.insert("outbox_events", oldEvent("a", "active", now, now))
		lines, err := w.tool(t.Context(), append(w.events(), "--wait", "50ms")...)
		require.ErrorContains(t, err, "1 documents are still leased")
		require.Contains(t, lastLine(lines), "moved=0 repeated=0 leased=1")

		// Its worker dies, and the time of its lease passes.
		_, err = w.db.Collection("outbox_events").UpdateMany(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "keepAlive", Value: now.Add(-time.Hour)}}}})
		require.NoError(t, err)
		_, err = w.tool(t.Context(), w.events()...)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, messageIDs(w.records()))
	})

	t.Run("an entry that becomes visible later is due later", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.load("koan.json", "Outbox")
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		ticks := later.UnixMilli()*10_000 + 621_355_968_000_000_000
		_, err := w.db.Collection("Outbox").UpdateMany(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "VisibleAt", Value: bson.A{ticks, int32(0)}}}}})
		require.NoError(t, err)
		_, err = w.tool(t.Context(), w.entries()...)
		require.NoError(t, err)
		require.Empty(t, w.records())
		var record struct {
			Next int64 `bson:"next"`
		}
		require.NoError(t, w.db.Collection("outmill_records").FindOne(t.Context(), bson.D{}).Decode(&record))
		require.WithinDuration(t, later, time.UnixMicro(record.Next), time.Millisecond)
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
				w := newOldMongo(t)
				w.insert("outbox_events", oldEvent("good", "created", now, now), oldEvent("bad", "created", now.Add(time.Second), now))
				_, err := w.db.Collection("outbox_events").UpdateOne(t.Context(), bson.D{{Key: "eventId", Value: "bad"}},
					bson.D{{Key: "$set", Value: c.change}})
				require.NoError(t, err)

				_, err = w.tool(t.Context(), w.events()...)
				require.ErrorContains(t, err, "a document cannot be moved")
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, `{"$oid":"`)
				require.Equal(t, 2, w.count("outbox_events"))

				lines, err := w.tool(t.Context(), append(w.events(), "--skip-malformed")...)
				require.ErrorContains(t, err, "1 documents could not be moved")
				require.Contains(t, lines[0], "skipped")
				require.Contains(t, lastLine(lines), "moved=1 repeated=0 leased=0 dead=0 malformed=1")
				require.Equal(t, []string{"good"}, messageIDs(w.records()))
				require.Equal(t, 1, w.count("outbox_events"))
			})
		}
	})

	t.Run("following moves what is written until it is stopped", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := w.tool(ctx, append(w.events(), "--follow")...)
			ended <- err
		}()
		for _, id := range []string{"a", "b"} {
			w.insert("outbox_events", oldEvent(id, "created", time.Now(), time.Now()))
			require.Eventually(t, func() bool { return w.count("outbox_events") == 0 }, time.Minute, 5*time.Millisecond)
		}
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, []string{"a", "b"}, messageIDs(w.records()))
	})

	t.Run("a dry run only counts", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.load("koan.json", "Outbox")
		lines, err := w.tool(t.Context(), append(w.entries(), "--dry-run")...)
		require.NoError(t, err)
		require.Equal(t, "moved=3 repeated=0 leased=0 dead=1 malformed=0", lastLine(lines))
		require.Empty(t, w.records())
		require.Equal(t, "3 messages would be moved.\nLeft in the collection, dead (--dead moves them too): 1 document.\n",
			ok(t, "import", "koan", w.url, "--database", w.db.Name(), "--dry-run"))
	})

	t.Run("wrong usage says what is wanted", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		for want, args := range map[string][]string{
			"is not one on MongoDB": {"koan", newWorld(t).url},
			"--topic":               {"koan", w.url, "--topic", "{"},
			"--key":                 {"koan", w.url, "--key", "a{}"},
			"--batch-size":          {"koan", w.url, "--batch-size", "0"},
			"--wait":                {"koan", w.url, "--wait", "-1s"},
			"--every":               {"koan", w.url, "--every", "0s"},
			"--max-retries":         {"outbox-event-bus", w.url, "--max-retries", "0"},
		} {
			got := tool(t, append([]string{"import"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.Contains(t, got.stderr, want)
		}
		got := tool(t, "import", "koan", "mongodb://me:S3CRET@127.0.0.1:1/x?serverSelectionTimeoutMS=100")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "127.0.0.1")
		require.NotContains(t, got.stderr, "S3CRET")
	})
}

// oldEvent is a document as the old program writes it.
func oldEvent(id, status string, at, keepAlive time.Time) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.NewObjectID()}, {Key: "eventId", Value: id}, {Key: "type", Value: "user.created"},
		{Key: "payload", Value: bson.D{{Key: "userId", Value: id}}}, {Key: "occurredAt", Value: at}, {Key: "status", Value: status},
		{Key: "retryCount", Value: 0}, {Key: "nextRetryAt", Value: at}, {Key: "expireInSeconds", Value: 60}, {Key: "keepAlive", Value: keepAlive},
	}
}
