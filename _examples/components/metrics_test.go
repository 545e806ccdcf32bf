package components

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/microsoft/go-mssqldb" // the driver "sqlserver"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/subscriber"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func onSQLite(t *testing.T) outmill.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{}, nil)
	require.NoError(t, err)
	return store
}

func onPostgreSQL(t *testing.T) outmill.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Config{}, nil)
	require.NoError(t, err)
	return store
}

func onMongoDB(t *testing.T) outmill.Store {
	t.Helper()
	db := mongotest.Database(t)
	store, err := mongo.New(db.Client(), mongo.Config{Database: db.Name()}, nil)
	require.NoError(t, err)
	return store
}

func onSQLServer(t *testing.T) outmill.Store {
	t.Helper()
	db, err := sql.Open("sqlserver", sqlservertest.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store, err := sqlserver.New(db, sqlserver.Config{}, nil)
	require.NoError(t, err)
	return store
}

func ready(t *testing.T, open func(t *testing.T) outmill.Store) outmill.Store {
	t.Helper()
	store := open(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("Watermills metrics count what was published and handled under the librarys name", func(t *testing.T) {
		t.Parallel()
		for name, open := range map[string]func(t *testing.T) outmill.Store{
			"SQLite":     onSQLite,
			"PostgreSQL": onPostgreSQL,
			"MongoDB":    onMongoDB,
			"SQL Server": onSQLServer,
		} {
			t.Run("on "+name, func(t *testing.T) {
				t.Parallel()
				countsOn(t, ready(t, open))
			})
		}
	})

	t.Run("Watermills metrics around a publisher of batches are warned of unless batches may go past", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			decorate func(decorated, pub message.Publisher) message.Publisher
			warns    bool
			counted  int
		}{
			"hiding it":     {func(decorated, _ message.Publisher) message.Publisher { return decorated }, true, 3},
			"and an Unwrap": {func(decorated, pub message.Publisher) message.Publisher { return passable{decorated, pub} }, false, 0},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := ready(t, onSQLite)
				for i := range 3 {
					require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: fmt.Sprint(i)}))
				}
				brokers := kafkatest.Fake(t).Addrs
				pub, err := kafka.NewPublisher(kafka.Config{Brokers: brokers}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, pub.Close()) }()
				registry := prometheus.NewRegistry()
				decorated, err := metrics.NewPrometheusMetricsBuilder(registry, "", "").DecoratePublisher(pub)
				require.NoError(t, err)
				var log lines
				fwd, err := forwarder.New(store, c.decorate(decorated, pub), forwarder.Config{MapTopic: topicOf(kafkatest.Topic(t))},
					watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				defer func() { require.NoError(t, fwd.Close()) }()
				n, err := fwd.Once(t.Context())
				require.NoError(t, err)
				require.Equal(t, 3, n)
				if c.warns {
					require.Contains(t, log.text(), "Warning: a decorator hides a publisher that takes batches")
					require.Contains(t, log.text(), "decorator=metrics.PublisherPrometheusMetricsDecorator")
					require.Contains(t, log.text(), "hides=*kafka.Publisher")
				} else {
					require.NotContains(t, log.text(), "Warning")
					require.Contains(t, log.text(), "batches_through=*kafka.Publisher")
				}
				require.Equal(t, c.counted, count(t, registry, "publish_time_seconds", "publisher_name", "outmill.kafka"))
			})
		}
	})
}

// countsOn publishes three messages, of which a handler refuses one at first.
func countsOn(t *testing.T, store outmill.Store) {
	t.Helper()
	registry := prometheus.NewRegistry()
	builder := metrics.NewPrometheusMetricsBuilder(registry, "", "")
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	decorated, err := builder.DecoratePublisher(pub)
	require.NoError(t, err)
	sub, err := subscriber.New(store, subscriber.Config{
		PollInterval: 10 * time.Millisecond,
		Retry:        outmill.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
	}, nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	builder.AddPrometheusRouterMetrics(router)
	router.AddMiddleware(subscriber.KeepError)
	router.AddHandler("handler", "orders", sub, "handled", pub, func(msg *message.Message) ([]*message.Message, error) {
		delivery, known := outmill.Delivery(msg.Context())
		if !known {
			return nil, outmill.Permanent(errors.New("no delivery in the context"))
		}
		if msg.UUID == "1" && delivery.Attempt == 1 {
			return nil, errors.New("not yet")
		}
		return []*message.Message{message.NewMessage("of "+msg.UUID, nil)}, nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	defer func() {
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
	}()
	for i := range 3 {
		require.NoError(t, decorated.Publish("orders", message.NewMessage(fmt.Sprint(i), nil)))
	}
	require.Eventually(t, func() bool {
		return count(t, registry, "subscriber_messages_received_total", "subscriber_name", "outmill", "acked", "acked") == 3 &&
			count(t, registry, "publish_time_seconds", "publisher_name", "outmill", "handler_name", "handler") == 3
	}, patience, 5*time.Millisecond)
	require.Equal(t, 1, count(t, registry, "subscriber_messages_received_total", "subscriber_name", "outmill", "acked", "nacked"))
	require.Equal(t, 3, count(t, registry, "publish_time_seconds", "publisher_name", "outmill", "handler_name", "<no handler>", "success",
		"true"))
	require.Equal(t, 3, count(t, registry, "handler_execution_time_seconds", "success", "true"))
	require.Equal(t, 1, count(t, registry, "handler_execution_time_seconds", "success", "false"))
}

// count adds up the metrics of a name that have all the labels, given as pairs.
func count(t *testing.T, registry *prometheus.Registry, name string, labels ...string) int {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	total := 0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if has(metric, labels) {
				total += int(metric.GetCounter().GetValue()) + int(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}

func has(metric *dto.Metric, labels []string) bool {
	found := map[string]string{}
	for _, pair := range metric.GetLabel() {
		found[pair.GetName()] = pair.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if found[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// passable lets batches go past what it wraps.
type passable struct {
	message.Publisher
	inner message.Publisher
}

func (p passable) Unwrap() message.Publisher { return p.inner }

func topicOf(name string) func(string, *message.Message) string {
	return func(string, *message.Message) string { return name }
}

// lines can be written to and read by several goroutines.
type lines struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}
