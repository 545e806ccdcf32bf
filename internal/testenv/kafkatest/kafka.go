package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
)

// Broker is a fake Kafka for one test.
type Broker struct {
	// Addrs are the addresses to connect to.
	Addrs []string
	// Cluster controls the fake: faults, topics, nodes.
	Cluster *kfake.Cluster
}

// Fake starts a fake broker of one node in the test's process, on loopback, and ends it
// with the test. It creates topics on request of a client, with one partition, unless an
// option changes this.
func Fake(tb testing.TB, opts ...kfake.Opt) Broker {
	tb.Helper()
	defaults := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(1), kfake.AllowAutoTopicCreation()}
	return start(tb, append(defaults, opts...)...)
}

// FakeWithoutAutoTopics is Fake without automatic creation of topics.
func FakeWithoutAutoTopics(tb testing.TB, opts ...kfake.Opt) Broker {
	tb.Helper()
	defaults := []kfake.Opt{kfake.NumBrokers(1), kfake.DefaultNumPartitions(1)}
	return start(tb, append(defaults, opts...)...)
}

func start(tb testing.TB, opts ...kfake.Opt) Broker {
	tb.Helper()
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(tb, err, "start a fake Kafka")
	tb.Cleanup(cluster.Close)
	return Broker{Addrs: cluster.ListenAddrs(), Cluster: cluster}
}

// Real returns the addresses of a real Kafka, the same for all tests of
// the binary, or skips the test.
func Real(tb testing.TB) []string {
	tb.Helper()
	addrs, err := findOrStart()
	if err != nil {
		if os.Getenv(kafkaengine.EnvURL) != "" {
			tb.Fatalf("no real Kafka: %v", err)
		}
		skip(tb, err)
	}
	return addrs
}

// Own starts a real Kafka for this test alone, which may stop and kill it, and ends it with
// the test. If Kafka cannot be started, the test is skipped.
func Own(tb testing.TB) *kafkaengine.Engine {
	tb.Helper()
	engine, err := startEngine(tb.Context())
	if err != nil {
		skip(tb, err)
	}
	tb.Cleanup(engine.Detach)
	return engine
}

// Each runs the test twice, in parallel: on a new fake Kafka and on a real one.
func Each(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Helper()
	t.Run("on a fake Kafka", func(t *testing.T) {
		t.Parallel()
		test(t, FakeWithoutAutoTopics(t).Addrs)
	})
	t.Run("on a real Kafka", func(t *testing.T) {
		t.Parallel()
		test(t, Real(t))
	})
}

func skip(tb testing.TB, reason error) {
	tb.Helper()
	text := strings.Join(strings.Fields(reason.Error()), " ")
	tb.Skipf("skipped: no real Kafka (%s); set %s=host:port, or install Java 17 and Maven so that the test can start one", text,
		kafkaengine.EnvURL)
}

var findOrStart = sync.OnceValues(func() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.StartWithin)
	defer cancel()
	if addrs, err := kafkaengine.Find(ctx); err != nil || addrs != nil {
		return addrs, err
	}
	engine, err := startEngine(ctx)
	if err != nil {
		return nil, err
	}
	started = append(started, engine)
	return []string{engine.Addr}, nil
})

// started keeps the engine reachable, so that the broker runs as long as the test binary.
// Otherwise the garbage collector would close the pipe to the broker, which ends the
// broker.
var started []*kafkaengine.Engine

func startEngine(ctx context.Context) (*kafkaengine.Engine, error) {
	if testing.Short() {
		return nil, errors.New("none is started under -short")
	}
	ctx, cancel := context.WithTimeout(ctx, testenv.StartWithin)
	defer cancel()
	dir, err := os.MkdirTemp("", "outmill-kafka-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for Kafka: %w", err)
	}
	engine, err := kafkaengine.Prepare(ctx, dir)
	if err == nil {
		err = engine.StartAttached(ctx)
	}
	if err != nil {
		if engine != nil {
			engine.Detach()
		}
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return engine, nil
}
