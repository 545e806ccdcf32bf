package subscriber_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/subscriber"
)

func TestSubscriber_Reads(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, s *shop, log *journal.Journal, name string, change func(*subscriber.Config)) *subscriber.Subscriber {
		t.Helper()
		cfg := quick()
		cfg.UpkeepInterval, cfg.Worker = 5*time.Millisecond, name
		change(&cfg)
		sub, err := subscriber.New(s, cfg, log)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		return sub
	}
	readsOf := func(t *testing.T, s *shop, name string) []outmill.Reading {
		t.Helper()
		groups, err := s.Groups(t.Context())
		require.NoError(t, err)
		for _, w := range groups[0].Workers {
			if w.Name == name {
				return w.Reads
			}
		}
		return nil
	}
	ordered := func(c *subscriber.Config) { c.Order, c.KeyPolicy = outmill.OrderKey, outmill.KeySkip }
	unordered := func(*subscriber.Config) {}
	const warning = "read a topic in different orders or by different policies"

	t.Run("each registration says how all subscribers of the process's name read", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		subscribe(t, open(t, s, journal.New(), "one", ordered))
		topics := func(include ...string) outmill.Topics { return outmill.Topics{Include: include} }
		want := []outmill.Reading{{Topics: topics(topic), Order: outmill.OrderKey, KeyPolicy: outmill.KeySkip}}
		require.Equal(t, want, readsOf(t, s, "one"), "the first registration")

		other := open(t, s, journal.New(), "one", unordered)
		_, err := other.Subscribe(t.Context(), "b*")
		require.NoError(t, err)
		_, err = other.Subscribe(t.Context(), "a")
		require.NoError(t, err)
		want = append(want, outmill.Reading{Topics: topics("a", `b\*`)})
		// A report that the first subscriber was writing as the other one began has less, until its next one.
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.ElementsMatch(c, want, readsOf(t, s, "one")) }, patience, time.Millisecond)
	})

	t.Run("a worker warns once of another one of its group that reads its topic in another way", func(t *testing.T) {
		t.Parallel()
		s, log := openShop(t), journal.New()
		subscribe(t, open(t, s, journal.New(), "old", unordered))
		// Each look warns of this topic, so the count of its warnings is the number of looks.
		require.NoError(t, s.pub.Publish("nobody.reads.this", newOrder()))
		subscribe(t, open(t, s, log, "new", ordered))
		require.Eventually(t, func() bool { return log.Count("ERROR", warning, topic, "old", "new") == 1 }, patience, time.Millisecond)
		seen := log.Count("ERROR", "nobody.reads.this")
		require.Eventually(t, func() bool { return log.Count("ERROR", "nobody.reads.this") >= seen+3 }, patience, time.Millisecond)
		require.Equal(t, 1, log.Count(warning))
	})

	t.Run("workers of other topics, and those that have stopped, are no reason to warn", func(t *testing.T) {
		t.Parallel()
		s, log := openShop(t), journal.New()
		elsewhere := open(t, s, journal.New(), "elsewhere", unordered)
		_, err := elsewhere.Subscribe(t.Context(), "returns")
		require.NoError(t, err)
		gone := open(t, s, journal.New(), "gone", unordered)
		subscribe(t, gone)
		require.NoError(t, gone.Close())
		require.NoError(t, s.pub.Publish("nobody.reads.this", newOrder()))
		subscribe(t, open(t, s, log, "new", ordered))
		require.Eventually(t, func() bool { return log.Count("ERROR", "nobody.reads.this") >= 3 }, patience, time.Millisecond)
		require.Zero(t, log.Count(warning))
	})
}
