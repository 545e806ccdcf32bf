package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestImportMongo_Crash(t *testing.T) {
	t.Parallel()

	t.Run("a tool that is killed again and again moves each document once and in order", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		const n = 300
		began := time.Now().Add(-time.Hour)
		var want []string
		docs := make([]bson.D, n)
		for i := range docs {
			want = append(want, fmt.Sprintf("e%03d", i))
			docs[i] = oldEvent(want[i], "created", began.Add(time.Duration(i)*time.Millisecond), began)
		}
		// The order differs from that in which they happened.
		slices.Reverse(docs)
		w.insert("outbox_events", docs...)
		for range 4 {
			left := w.count("outbox_events")
			w.killWhenItHasMoved(append(w.events(), "--follow", "--batch-size", "5"), left)
		}
		_, err := w.tool(t.Context(), w.events()...)
		require.NoError(t, err)
		require.Zero(t, w.count("outbox_events"))
		require.Equal(t, want, messageIDs(w.records()))
	})

	t.Run("old workers that still run and the tool share the events", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		const n = 200
		now := time.Now()
		want := map[string]int{}
		var docs []bson.D
		for i := range n {
			id := fmt.Sprintf("e%03d", i)
			want[id] = 1
			docs = append(docs, oldEvent(id, "created", now, now))
		}
		w.insert("outbox_events", docs...)
		handled := make(chan []string, 1)
		go func() { handled <- w.workAsBefore(n / 2) }()
		_, err := w.tool(t.Context(), append(w.events(), "--batch-size", "10")...)
		require.NoError(t, err)
		got := map[string]int{}
		for _, id := range append(<-handled, messageIDs(w.records())...) {
			got[id]++
		}
		require.Equal(t, want, got)
	})

	t.Run("an interrupted tool says so and can be started again", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		now := time.Now().Add(-time.Hour)
		for i := range 40 {
			w.insert("outbox_events", oldEvent(fmt.Sprintf("e%02d", i), "created", now.Add(time.Duration(i)*time.Millisecond), now))
		}
		w.insert("outbox_events", oldEvent("leased", "active", now, time.Now()))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan result, 1)
		go func() { ended <- outmillTool(ctx, w.command(append(w.events(), "--batch-size", "5"))...) }()
		require.Eventually(t, func() bool { return w.count("outbox_events") < 41 }, time.Minute, time.Millisecond)
		stop()
		got := <-ended
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "stopped before everything was moved")
		_, err := w.db.Collection("outbox_events").UpdateMany(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "keepAlive", Value: now}}}})
		require.NoError(t, err)
		_, err = w.tool(t.Context(), w.events()...)
		require.NoError(t, err)
		require.Len(t, w.records(), 41)
	})
}

// killWhenItHasMoved starts the tool as a process and kills it during its work. The transaction
// that it leaves may block the next one until
// the server ends it, after a minute.
func (w *oldMongo) killWhenItHasMoved(args []string, left int) {
	w.Helper()
	tool := exec.CommandContext(w.Context(), binary, w.command(args)...)
	require.NoError(w, tool.Start())
	require.Eventually(w, func() bool { return w.count("outbox_events") < left }, 3*time.Minute, time.Millisecond)
	require.NoError(w, tool.Process.Kill())
	_ = tool.Wait()
}

// workAsBefore handles up to this number of events like a worker of the old program, and returns
// the handled ones.
func (w *oldMongo) workAsBefore(most int) (handled []string) {
	events := w.db.Collection("outbox_events")
	for range most {
		var event struct {
			ID      bson.ObjectID `bson:"_id"`
			EventID string        `bson:"eventId"`
		}
		now := time.Now()
		err := events.FindOneAndUpdate(w.Context(), bson.D{{Key: "status", Value: "created"}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "active"}, {Key: "startedOn", Value: now}, {Key: "keepAlive", Value: now}}}},
			options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&event)
		if err != nil {
			return handled
		}
		handled = append(handled, event.EventID)
		if _, err := events.UpdateByID(w.Context(), event.ID,
			bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "completed"}, {Key: "completedOn", Value: time.Now()}}}}); err != nil {
			return handled
		}
	}
	return handled
}
