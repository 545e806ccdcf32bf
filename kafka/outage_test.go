package kafka_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/proc"
	"github.com/outmill/outmill/kafka"
)

func TestOutage(t *testing.T) {
	t.Parallel()

	t.Run("unavailable brokers are reported in limited time with a remedy", func(t *testing.T) {
		t.Parallel()
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { silent.Close() })
		for name, addr := range map[string]string{"nothing listens": "127.0.0.1:1", "nothing answers": silent.Addr().String(),
			"no such host": "broker.invalid:9092"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pub := newPublisher(t, []string{addr}, kafka.Config{DeliveryTimeout: time.Second})
				began := time.Now()
				batch := numbered(3)
				failed := failedMessages(t, pub.Publish("topic", batch...))
				require.Less(t, time.Since(began), soon)
				require.Len(t, failed, 3)
				for i, f := range failed {
					require.Equal(t, batch[i].UUID, f.MessageID)
					require.Equal(t, "topic", f.Topic)
					require.False(t, outmill.IsPermanent(f.Err))
					require.NotErrorIs(t, f.Err, outmill.ErrTopicUnavailable)
					for _, want := range []string{addr, "Brokers", "TLS", "SASL"} {
						require.ErrorContains(t, f.Err, want)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorContains(t, pub.Ping(ctx), addr)
			})
		}
	})

	t.Run("after an outage the same publisher works again", func(t *testing.T) {
		t.Parallel()
		addr, broker := restartableFake(t)
		outage(t, addr, broker)
	})

	// Starting a broker is expensive: these share one, one after the other.
	t.Run("with its own real Kafka", func(t *testing.T) {
		t.Parallel()
		engine := kafkatest.Own(t)
		t.Run("a publisher authenticates over TLS, with each mechanism", func(t *testing.T) { authenticates(t, engine) })
		t.Run("the error of a missing topic says that the broker creates none", func(t *testing.T) { createsNoTopics(t, engine) })
		t.Run("late messages of a hung broker come before messages that are sent later", func(t *testing.T) { hangs(t, engine) })
		t.Run("a broker that is killed and comes back needs no new publisher", func(t *testing.T) {
			outage(t, engine.Addr, restartableReal(engine))
		})
	})

	t.Run("a call returns soon after its context ends and reports the unknown results", func(t *testing.T) {
		t.Parallel()
		broker, gates := gatedKafka(t, 2, kfake.SeedTopics(1, "fast", "slow"))
		require.NoError(t, broker.Cluster.MoveTopicPartition("fast", 0, 0))
		require.NoError(t, broker.Cluster.MoveTopicPartition("slow", 0, 1))
		pub := newPublisher(t, broker.Addrs, kafka.Config{})
		require.NoError(t, pub.PublishBatch(t.Context(), append(outgoing("fast", newMessage("0")), outgoing("slow", newMessage("0"))...)))

		open := gates[1].shut()
		defer open()
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			first <- pub.PublishBatch(ctx, append(outgoing("fast", newMessage("1")), outgoing("slow", newMessage("1"))...))
		}()
		<-gates[1].held
		require.Eventually(t, func() bool { return broker.Cluster.PartitionInfo("fast", 0).HighWatermark == 2 }, soon, time.Millisecond)
		go func() { second <- pub.PublishBatch(ctx, outgoing("slow", newMessage("2"))) }()
		cancel()
		unknown := failedMessages(t, <-first)
		last := unknown[len(unknown)-1]
		require.Equal(t, "slow", last.Topic)
		require.ErrorIs(t, last.Err, context.Canceled)
		require.ErrorContains(t, last.Err, "may still be delivered")
		failed := failedAlone(t, <-second)
		require.ErrorIs(t, failed.Err, context.Canceled)
		require.ErrorContains(t, failed.Err, "not sent")
		open()
		require.NoError(t, pub.Publish("slow", newMessage("3")))
		require.Equal(t, []string{"0", "1", "3"}, payloads(kafkatest.ReadAll(t, broker.Addrs, "slow")))
	})

	t.Run("a call whose context has ended sends nothing", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.FakeWithoutAutoTopics(t, kfake.SeedTopics(1, "topic"))
		pub := newPublisher(t, broker.Addrs, kafka.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			failed := failedAlone(t, pub.PublishBatch(ctx, outgoing("topic", newMessage("x"))))
			require.ErrorIs(t, failed.Err, context.Canceled)
			require.ErrorContains(t, failed.Err, "not sent")
			require.NoError(t, pub.Publish("topic", newMessage("y")))
		}
		require.Equal(t, []string{"y", "y"}, payloads(kafkatest.ReadAll(t, broker.Addrs, "topic")))
	})

	t.Run("a publisher that was refused a producer id works once it gets one", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.FakeWithoutAutoTopics(t, kfake.SeedTopics(1, "topic"))
		refused := broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed,
			Count: -1})
		pub := newPublisher(t, broker.Addrs, kafka.Config{})
		for range 2 {
			failed := failedAlone(t, pub.Publish("topic", newMessage("x")))
			require.ErrorIs(t, failed.Err, kerr.ClusterAuthorizationFailed)
			require.NotErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
			require.False(t, outmill.IsPermanent(failed.Err))
		}
		refused.Remove()
		require.Eventually(t, func() bool { return pub.Publish("topic", newMessage("y")) == nil }, soon, time.Millisecond)
		require.Equal(t, []string{"y"}, payloads(kafkatest.ReadAll(t, broker.Addrs, "topic")))
	})

	t.Run("Close ends in limited time during an outage", func(t *testing.T) {
		t.Parallel()
		broker, gates := gatedKafka(t, 1, kfake.SeedTopics(1, "topic"))
		pub, err := kafka.NewPublisher(kafka.Config{Brokers: broker.Addrs, DeliveryTimeout: 500 * time.Millisecond}, nil)
		require.NoError(t, err)
		require.NoError(t, pub.Publish("topic", newMessage("x")))
		defer gates[0].shut()()
		result := make(chan error, 1)
		go func() { result <- pub.Publish("topic", newMessage("y")) }()
		<-gates[0].held
		began := time.Now()
		require.NoError(t, pub.Close())
		require.Less(t, time.Since(began), soon)
		require.ErrorContains(t, failedAlone(t, <-result).Err, "DeliveryTimeout")
	})
}

// outage stops the broker and starts it again.
func outage(t *testing.T, addr string, broker restarter) {
	brokers := []string{addr}
	topic := kafkatest.CreateTopic(t, brokers, 2)
	// Long enough for the publishes that succeed on a busy machine; those that fail take it whole.
	pub := newPublisher(t, brokers, kafka.Config{DeliveryTimeout: 4 * time.Second})
	require.NoError(t, pub.Ping(t.Context()))
	require.NoError(t, pub.Publish(topic, numbered(10)...))

	broker.stop(t)
	for range 2 {
		batch := numbered(10)
		began := time.Now()
		failed := failedMessages(t, pub.Publish(topic, batch...))
		require.Less(t, time.Since(began), soon)
		require.Len(t, failed, len(batch))
		require.ErrorContains(t, failed[0].Err, "kafka.Config.Brokers")
	}
	require.Error(t, pub.Ping(t.Context()))

	broker.start(t)
	require.NoError(t, pub.Publish(topic, numbered(10)...))
	require.NoError(t, pub.Ping(t.Context()))
	require.Len(t, kafkatest.ReadAll(t, brokers, topic), 20)
}

type restarter struct{ stop, start func(*testing.T) }

func restartableFake(t *testing.T) (string, restarter) {
	dir := t.TempDir()
	port, err := proc.FreePort()
	require.NoError(t, err)
	open := func() (*kfake.Cluster, error) {
		return kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir))
	}
	cluster, err := open()
	require.NoError(t, err)
	addr := cluster.ListenAddrs()[0]
	t.Cleanup(func() { cluster.Close() })
	return addr, restarter{
		stop: func(*testing.T) { cluster.Close() },
		start: func(t *testing.T) {
			cluster, err = open()
			require.NoError(t, err)
		},
	}
}

func restartableReal(engine *kafkaengine.Engine) restarter {
	return restarter{
		stop: func(t *testing.T) {
			process, err := engine.Process()
			require.NoError(t, err)
			require.NoError(t, process.Kill())
			require.Eventually(t, func() bool {
				conn, err := net.Dial("tcp", engine.Addr)
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			}, soon, 10*time.Millisecond)
		},
		start: func(t *testing.T) { require.NoError(t, engine.StartAttached(t.Context())) },
	}
}

func hangs(t *testing.T, engine *kafkaengine.Engine) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: only Linux tells when a process has stopped (/proc)")
	}
	brokers := []string{engine.Addr}
	topic := kafkatest.CreateTopic(t, brokers, 1)
	pub := newPublisher(t, brokers, kafka.Config{DeliveryTimeout: time.Second})
	publish := func(msg *message.Message) {
		require.Eventually(t, func() bool { return pub.Publish(topic, msg) == nil }, soon, time.Millisecond)
	}
	publish(keyedMessage("k", "0"))
	process, err := engine.Process()
	require.NoError(t, err)
	next := 1
	for range 2 {
		// The request is in the broker's socket. The broker reads it when the process continues.
		stop(t, process)
		hung := keyedMessage("k", fmt.Sprint(next))
		failed := failedAlone(t, pub.Publish(topic, hung))
		require.NotErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
		require.False(t, outmill.IsPermanent(failed.Err))
		require.NoError(t, process.Signal(syscall.SIGCONT))
		publish(hung)
		publish(keyedMessage("k", fmt.Sprint(next+1)))
		next += 2
	}
	requireOrder(t, payloads(kafkatest.ReadAll(t, brokers, topic)), next)
}

// stop stops the process and returns when none of its threads runs any more.
func stop(t *testing.T, process *os.Process) {
	t.Helper()
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
	status := fmt.Sprintf("/proc/%d/task/*/status", process.Pid)
	require.Eventually(t, func() bool {
		tasks, err := filepath.Glob(status)
		if err != nil || len(tasks) == 0 {
			return false
		}
		return !slices.ContainsFunc(tasks, func(task string) bool {
			text, err := os.ReadFile(task)
			return err != nil || !strings.Contains(string(text), "\nState:\tT")
		})
	}, soon, time.Millisecond)
}

// requireOrder requires the numbers 0 to n-1 in order. A number may be repeated, but not
// behind a later number.
func requireOrder(t *testing.T, got []string, n int) {
	t.Helper()
	highest := -1
	for _, text := range got {
		var i int
		_, err := fmt.Sscan(text, &i)
		require.NoError(t, err)
		require.True(t, i == highest || i == highest+1, "%d after %d: %s", i, highest, strings.Join(got, " "))
		highest = i
	}
	require.Equal(t, n-1, highest)
}
