package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func Test_the_events_of_outbox_event_bus_become_messages(t *testing.T) {
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
	// What is done and what is dead is left alone.
	require.Equal(t, []string{"completed", "failed"}, w.statuses("outbox_events", "status"))
	require.Equal(t, 2, w.count("outbox_events"))
}

func Test_the_entries_of_koan_become_messages(t *testing.T) {
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
	require.Equal(t, map[string]string{"entity_type": "Shop.Order", "operation": "Upsert", "entity_id": "o-1", "occurred_at": "2025-11-21T16:10:01Z"}, first.Metadata)
	require.Equal(t, "north", second.Metadata["tenant"])
	customers := of("Shop.Customer", records)
	require.Len(t, customers, 1)
	require.Equal(t, "2025-11-21T16:10:02Z", customers[0].Metadata["occurred_at"])
	require.Equal(t, []string{"Dead", "Done"}, w.statuses("Outbox", "Status"))
}

func Test_what_is_dead_is_moved_where_that_is_asked_for(t *testing.T) {
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
}

func Test_what_was_moved_is_kept_in_an_archive_as_it_was(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	docs := w.load("koan.json", "Outbox")
	_, err := w.tool(t.Context(), append(w.entries(), "-archive", "Moved")...)
	require.NoError(t, err)
	require.Equal(t, 3, w.count("Moved"))
	var kept bson.D
	require.NoError(t, w.db.Collection("Moved").FindOne(t.Context(), bson.D{{Key: "_id", Value: docs[0][0].Value}}).Decode(&kept))
	require.Equal(t, docs[0], kept)
}

func Test_topics_and_keys_are_made_of_fields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load("outbox-event-bus.json", "outbox_events")
	_, err := w.tool(t.Context(), append(w.events(), "-topic", "legacy.{type}", "-key", "user-{payload.userId}", "-dead")...)
	require.NoError(t, err)
	keys := map[string]string{}
	for _, r := range w.records() {
		keys[r.MessageID[len(r.MessageID)-2:]] = r.Topic + " " + r.Key
	}
	// A payload that is no document has no such field, and so no key.
	require.Equal(t, map[string]string{"01": "legacy.user.created user-u1", "02": "legacy.user.created user-u2", "03": "legacy.user.renamed user-u1", "04": "legacy.user.deleted "}, keys)
}

func Test_an_event_that_an_old_worker_has_is_waited_for(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.insert("outbox_events", event("a", "active", now, now))
	lines, err := w.tool(t.Context(), append(w.events(), "-patience", "50ms")...)
	require.ErrorContains(t, err, "1 documents are still leased")
	require.Contains(t, last(lines), "moved=0 repeated=0 leased=1")

	// Its worker dies, and the time of its lease passes.
	_, err = w.db.Collection("outbox_events").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "keepAlive", Value: now.Add(-time.Hour)}}}})
	require.NoError(t, err)
	_, err = w.tool(t.Context(), w.events()...)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, ids(w.records()))
}

func Test_an_entry_that_becomes_visible_later_is_due_later(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load("koan.json", "Outbox")
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	ticks := later.UnixMilli()*10_000 + ticksAtEpoch
	_, err := w.db.Collection("Outbox").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "VisibleAt", Value: bson.A{ticks, int32(0)}}}}})
	require.NoError(t, err)
	_, err = w.tool(t.Context(), w.entries()...)
	require.NoError(t, err)
	require.Empty(t, w.records())
	var record struct {
		DueAt time.Time `bson:"due_at"`
	}
	require.NoError(t, w.db.Collection("outmill_records").FindOne(t.Context(), bson.D{}).Decode(&record))
	require.WithinDuration(t, later, record.DueAt, time.Millisecond)
}

func Test_a_document_that_cannot_be_moved_stops_the_tool_or_is_reported(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		change bson.D
		want   string
	}{
		"an unknown status":          {bson.D{{Key: "status", Value: "paused"}}, "status is"},
		"no topic":                   {bson.D{{Key: "type", Value: nil}}, "the topic"},
		"no event id":                {bson.D{{Key: "eventId", Value: nil}}, "eventId"},
		"a topic that is too long":   {bson.D{{Key: "type", Value: string(bytes.Repeat([]byte("x"), 300))}}, "topic"},
		"a payload that has no JSON": {bson.D{{Key: "payload", Value: bson.D{{Key: "S3CRET", Value: bson.Regex{Pattern: "S3CRET"}}}}}, "has no JSON"},
		"a time that is none":        {bson.D{{Key: "occurredAt", Value: "yesterday"}}, "occurredAt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.insert("outbox_events", event("good", "created", now, now), event("bad", "created", now.Add(time.Second), now))
			_, err := w.db.Collection("outbox_events").UpdateOne(t.Context(), bson.D{{Key: "eventId", Value: "bad"}}, bson.D{{Key: "$set", Value: c.change}})
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
}

// event is a document as the old program writes it.
func event(id, status string, at, keepAlive time.Time) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.NewObjectID()}, {Key: "eventId", Value: id}, {Key: "type", Value: "user.created"},
		{Key: "payload", Value: bson.D{{Key: "userId", Value: id}}}, {Key: "occurredAt", Value: at}, {Key: "status", Value: status},
		{Key: "retryCount", Value: 0}, {Key: "nextRetryAt", Value: at}, {Key: "expireInSeconds", Value: 60}, {Key: "keepAlive", Value: keepAlive},
	}
}

func Test_following_moves_what_is_written_meanwhile_until_it_is_stopped(t *testing.T) {
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
}

func Test_wrong_usage_says_what_is_wanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":           {nil, "-store is missing"},
		"no layout":         {[]string{"-store", "mongodb://host/x"}, "-layout wants koan or outbox-event-bus"},
		"another store":     {[]string{"-store", "sqlite::memory:", "-layout", "koan"}, "no store that is registered"},
		"a bad template":    {[]string{"-store", "mongodb://host/x", "-layout", "koan", "-topic", "{"}, "-topic"},
		"nothing in it":     {[]string{"-store", "mongodb://host/x", "-layout", "koan", "-key", "a{}"}, "-key"},
		"an argument":       {[]string{"-store", "mongodb://host/x", "outbox"}, `"outbox"`},
		"an empty batch":    {[]string{"-store", "mongodb://host/x", "-layout", "koan", "-batch", "0"}, "-batch"},
		"nothing listens":   {[]string{"-store", "mongodb://me:S3CRET@127.0.0.1:1/x?serverSelectionTimeoutMS=100", "-layout", "koan"}, "127.0.0.1"},
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
}
