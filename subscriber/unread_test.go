package subscriber_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/subscriber"
)

// TestSubscriber_WarnsOfUnreadTopics has a subscriber that looks at the topics of its group every
// few milliseconds.
func TestSubscriber_WarnsOfUnreadTopics(t *testing.T) {
	t.Parallel()
	t.Run("it warns of topics of its group that no worker reads, and of none that another worker reads (OBX-055)", func(t *testing.T) {
		t.Parallel()
		const unread, warning = "returns", "no worker of the group has registered for their topic"
		s := openShop(t)
		log := journal.New()
		cfg := quick()
		cfg.UpkeepInterval = 5 * time.Millisecond
		looking, err := subscriber.New(s, cfg, log)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, looking.Close()) })
		subscribe(t, looking)
		// Each look warns of this topic, so the count of its warnings is the number of looks.
		require.NoError(t, s.pub.Publish("nobody.reads.this", newOrder()))
		look := func() {
			seen := log.Count("ERROR", "nobody.reads.this")
			require.Eventually(t, func() bool { return log.Count("ERROR", "nobody.reads.this") >= seen+3 }, patience, time.Millisecond)
		}

		// Another subscriber of the group reads the topic. Its handler is busy, so records are due.
		busy := quick()
		busy.MaxInFlight, busy.BatchSize = 1, 1
		other, err := subscriber.New(s, busy, nil)
		require.NoError(t, err)
		messages, err := other.Subscribe(context.Background(), unread)
		require.NoError(t, err)
		for range 20 {
			require.NoError(t, s.pub.Publish(unread, newOrder()))
		}
		held := <-messages
		look()
		require.Zero(t, log.Count(warning), "another subscriber reads the topic")

		held.Ack()
		require.NoError(t, other.Close())
		look()
		require.Zero(t, log.Count(warning), "a reader that has ended just now may come back")

		_, err = s.DB().ExecContext(t.Context(),
			`UPDATE outmill_entries SET made_at = 1 WHERE kind = 'registration' AND value LIKE '%'||?||'%'`, unread)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return log.Count("ERROR", warning, unread) > 0 }, patience, time.Millisecond)
	})
}
