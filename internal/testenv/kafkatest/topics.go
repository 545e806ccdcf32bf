package kafkatest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill/internal/testenv"
)

// Topic returns a topic name that no other test has, in this run or another.
func Topic(tb testing.TB) string {
	tb.Helper()
	const longest = 150
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, tb.Name())
	name = name[:min(len(name), longest)]
	return name + "." + testenv.Suffix(".")
}

// CreateTopic creates a new topic for the test, waits until clients can produce to it, and
// deletes it with the test. Settings are pairs such as "max.message.bytes=2000".
func CreateTopic(tb testing.TB, brokers []string, partitions int, settings ...string) string {
	tb.Helper()
	topic := Topic(tb)
	CreateTopicNamed(tb, brokers, topic, partitions, settings...)
	return topic
}

// CreateTopicNamed is CreateTopic for a name that the test got from Topic.
func CreateTopicNamed(tb testing.TB, brokers []string, topic string, partitions int, settings ...string) {
	tb.Helper()
	configs := map[string]*string{}
	for _, setting := range settings {
		name, value, ok := strings.Cut(setting, "=")
		require.True(tb, ok, "topic setting %q: want name=value", setting)
		configs[name] = &value
	}
	admin := admin(tb, brokers)
	ctx, cancel := context.WithTimeout(tb.Context(), testenv.Patience)
	defer cancel()
	_, err := admin.CreateTopic(ctx, int32(partitions), 1, configs, topic)
	require.NoError(tb, err, "create topic %s", topic)
	tb.Cleanup(func() { deleteTopic(brokers, topic) })
	require.Eventually(tb, func() bool {
		listed, err := admin.ListTopics(ctx, topic)
		if err != nil || listed[topic].Err != nil || len(listed[topic].Partitions) != partitions {
			return false
		}
		leaderless := func(p kadm.PartitionDetail) bool { return p.Err != nil || p.Leader < 0 }
		return !slices.ContainsFunc(listed[topic].Partitions.Sorted(), leaderless)
	}, testenv.Patience, 10*time.Millisecond, "topic %s has no leaders", topic)
}

// DeleteTopic deletes a topic and waits until the broker no longer knows it.
func DeleteTopic(tb testing.TB, brokers []string, topic string) {
	tb.Helper()
	admin := admin(tb, brokers)
	ctx, cancel := context.WithTimeout(tb.Context(), testenv.Patience)
	defer cancel()
	_, err := admin.DeleteTopic(ctx, topic)
	require.NoError(tb, err, "delete topic %s", topic)
	require.Eventually(tb, func() bool {
		listed, err := admin.ListTopics(ctx, topic)
		return err == nil && listed[topic].Err != nil
	}, testenv.Patience, 10*time.Millisecond, "topic %s is still there", topic)
}

// ReadAll returns all records that the topic has at this moment. The records of one
// partition are in their order.
func ReadAll(tb testing.TB, brokers []string, topic string) []*kgo.Record {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testenv.Patience)
	defer cancel()
	ends, err := admin(tb, brokers).ListEndOffsets(ctx, topic)
	require.NoError(tb, err, "find the end of topic %s", topic)
	require.NoError(tb, ends.Error(), "find the end of topic %s", topic)
	left := 0
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			left++
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(tb, err)
	defer cl.Close()
	var records []*kgo.Record
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(tb, fetches.Err(), "read topic %s", topic)
		fetches.EachRecord(func(r *kgo.Record) {
			end, _ := ends.Lookup(topic, r.Partition)
			if r.Offset < end.Offset {
				records = append(records, r)
			}
			if r.Offset == end.Offset-1 {
				left--
			}
		})
	}
	return records
}

func admin(tb testing.TB, brokers []string) *kadm.Client {
	tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(tb, err)
	tb.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

// deleteTopic deletes the topic. It ignores errors, because the test may have ended the
// broker.
func deleteTopic(brokers []string, topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return
	}
	defer cl.Close()
	_, _ = kadm.NewClient(cl).DeleteTopics(ctx, topic)
}
