package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

func TestOrder(t *testing.T) {
	t.Parallel()

	t.Run("when a message fails the later ones of its key fail with it", func(t *testing.T) {
		t.Parallel()
		smallBatches := kafka.Config{MaxMessageBytes: 1000}
		for _, failure := range []*kerr.Error{kerr.UnknownServerError, kerr.TopicAuthorizationFailed} {
			for request := range 6 {
				t.Run(fmt.Sprintf("%s in request %d", failure.Message, request), func(t *testing.T) {
					t.Parallel()
					failsTogether(t, smallBatches, 100, request, failure)
				})
			}
			t.Run(failure.Message+" while the call is still being taken in", func(t *testing.T) {
				t.Parallel()
				failsTogether(t, kafka.Config{MaxBufferedRecords: 20_000}, 20_000, 0, failure)
			})
		}
	})

	// What a forwarder does: publish, and publish again what failed, while the
	// broker errs in every way that it can.
	t.Run("keys keep their order through failures and retries", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			keys := rapid.IntRange(1, 4).Draw(rt, "keys")
			count := rapid.IntRange(1, 60).Draw(rt, "messages")
			config := kafka.Config{
				MaxMessageBytes:    rapid.SampledFrom([]int{512, 1500, 100_000}).Draw(rt, "batch bytes"),
				MaxBufferedRecords: rapid.SampledFrom([]int{7, 1000}).Draw(rt, "buffered"),
				DeliveryTimeout:    300 * time.Millisecond,
			}
			faults := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(brokerFaults))), 0, 6).Draw(rt, "faults")
			cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "topic"))
			require.NoError(rt, err)
			defer cluster.Close()
			config.Brokers = cluster.ListenAddrs()
			pub, err := kafka.NewPublisher(config, nil)
			require.NoError(rt, err)
			defer pub.Close()
			inject(cluster, faults)

			var left []storekit.Outgoing
			for i := range count {
				left = append(left, outgoing("topic", keyedMessage(strconv.Itoa(i%keys), strconv.Itoa(i/keys)))...)
			}
			dead := map[*message.Message]bool{}
			all := left
			for tries := 0; len(left) > 0; tries++ {
				require.Less(rt, tries, 100)
				left = retried(rt, left, pub.PublishBatch(t.Context(), left), dead)
			}
			arrived := map[string][]string{}
			for _, r := range kafkatest.ReadAll(t, cluster.ListenAddrs(), "topic") {
				arrived[string(r.Key)] = append(arrived[string(r.Key)], string(r.Value))
			}
			for key := range min(keys, count) {
				var missing []bool
				for i := key; i < count; i += keys {
					missing = append(missing, dead[all[i].Message])
				}
				requireReplays(rt, arrived[strconv.Itoa(key)], missing)
			}
		})
	})
}

// failsTogether publishes in one call, makes one request fail, and compares the result of
// the call with the messages that arrived.
func failsTogether(t *testing.T, config kafka.Config, messages, request int, failure *kerr.Error) {
	broker := kafkatest.FakeWithoutAutoTopics(t, kfake.SeedTopics(2, "topic"))
	pub := newPublisher(t, broker.Addrs, config)
	require.NoError(t, pub.Publish("topic", keyedMessage("another key", "x")))
	var requests atomic.Int64
	broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0}, Err: failure, When: func(kmsg.Request) bool {
		return requests.Add(1) > int64(request)
	}})
	var batch []storekit.Outgoing
	for i := range messages {
		batch = append(batch, outgoing("topic", keyedMessage(fmt.Sprint("key", i%5), strconv.Itoa(i)))...)
	}
	failed := map[int]bool{}
	for _, f := range failedMessages(t, pub.PublishBatch(t.Context(), batch)) {
		require.ErrorIs(t, f.Err, failure)
		failed[f.Index] = true
	}
	broken, want := map[string]bool{}, map[string][]string{"another key": {"x"}}
	for i, out := range batch {
		key := out.Message.Metadata.Get(outmill.MetadataKey)
		require.False(t, broken[key] && !failed[i], "message %d did not fail with an earlier one of its key", i)
		broken[key] = failed[i]
		if !failed[i] {
			want[key] = append(want[key], strconv.Itoa(i))
		}
	}
	arrived := map[string][]string{}
	for _, r := range kafkatest.ReadAll(t, broker.Addrs, "topic") {
		arrived[string(r.Key)] = append(arrived[string(r.Key)], string(r.Value))
	}
	require.Equal(t, want, arrived)
}

const hangUp = "hang up"

// brokerFaults are the possible errors of one request. After a timeout, or with too few
// replicas left, the broker has written the records.
var brokerFaults = map[string]*kerr.Error{
	"none":                  nil,
	hangUp:                  nil,
	"timeout":               kerr.RequestTimedOut,
	"replicas lost":         kerr.NotEnoughReplicasAfterAppend,
	"too few replicas":      kerr.NotEnoughReplicas,
	"not the leader":        kerr.NotLeaderForPartition,
	"server error":          kerr.UnknownServerError,
	"disk error":            kerr.KafkaStorageError,
	"topic forbidden":       kerr.TopicAuthorizationFailed,
	"partition unknown":     kerr.UnknownTopicOrPartition,
	"topic's id unknown":    kerr.UnknownTopicID,
	"record not acceptable": kerr.InvalidRecord,
}

// inject makes the next requests fail with these errors, one after the other.
func inject(cluster *kfake.Cluster, faults []string) {
	var request atomic.Int64
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		i := request.Add(1) - 1
		if i >= int64(len(faults)) {
			return nil, nil, false
		}
		if faults[i] == hangUp {
			return nil, errors.New(hangUp), true
		}
		if err := brokerFaults[faults[i]]; err != nil {
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err})
		}
		return nil, nil, false
	})
}

// retried returns the messages to publish again, in their order, and records those that are
// permanently refused.
func retried(t *rapid.T, batch []storekit.Outgoing, err error, dead map[*message.Message]bool) []storekit.Outgoing {
	if err == nil {
		return nil
	}
	var failed *storekit.PublishError
	require.ErrorAs(t, err, &failed)
	var again []storekit.Outgoing
	for _, f := range failed.Failed {
		if outmill.IsPermanent(f.Err) {
			dead[batch[f.Index].Message] = true
		} else {
			again = append(again, batch[f.Index])
		}
	}
	return again
}

// requireReplays requires all numbers from 0 on in their order, except those that may be
// missing. Runs may be repeated: a run starts at a number that arrived before, and goes up
// to the last.
func requireReplays(t *rapid.T, got []string, missing []bool) {
	last := -1
	for _, text := range got {
		i, err := strconv.Atoi(text)
		require.NoError(t, err)
		for skipped := last + 1; skipped < i; skipped++ {
			require.True(t, missing[skipped], "%d is not where it should be: %v", skipped, got)
		}
		last = i
	}
	for skipped := last + 1; skipped < len(missing); skipped++ {
		require.True(t, missing[skipped], "%d is not where it should be: %v", skipped, got)
	}
}
