package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/monitor/prometheus"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, name string) *sqlite.Store {
	t.Helper()
	config := sqlite.Config{Name: name, EnsureSchema: true}
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), config, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func start(t *testing.T, config monitor.MetricsConfig, stores ...monitor.MeteredStore) (*client.Registry, *monitor.Metrics) {
	t.Helper()
	registry := client.NewPedanticRegistry()
	metrics, err := prometheus.New(registry, config, stores...)
	require.NoError(t, err)
	return registry, metrics
}

func publish(t *testing.T, store outmill.Writer, topic string, n int) {
	t.Helper()
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, pub.Publish(topic, messages(n)...))
}

func messages(n int) []*message.Message {
	list := make([]*message.Message, n)
	for i := range list {
		list[i] = message.NewMessage(watermill.NewUUID(), []byte("payload"))
	}
	return list
}

// samples returns the metrics of a name with these labels (name, value, name, value…).
func samples(t *testing.T, registry client.Gatherer, name string, labels ...string) []*dto.Metric {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	var found []*dto.Metric
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			if family.GetName() == name && has(sample, labels) {
				found = append(found, sample)
			}
		}
	}
	return found
}

func has(sample *dto.Metric, labels []string) bool {
	for pair := range slices.Chunk(labels, 2) {
		if !slices.ContainsFunc(sample.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == pair[0] && l.GetValue() == pair[1] }) {
			return false
		}
	}
	return true
}

func gauge(t *testing.T, registry client.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	found := samples(t, registry, name, labels...)
	require.Len(t, found, 1, "%s %v", name, labels)
	return found[0].GetGauge().GetValue()
}

// counted counts the calls of Stats.
type counted struct {
	*sqlite.Store
	calls *atomic.Int64
}

func (c counted) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	c.calls.Add(1)
	return c.Store.Stats(ctx, limit)
}

// mute never answers.
type mute struct{ *sqlite.Store }

func (mute) Stats(ctx context.Context, _ int) ([]outmill.TopicStats, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// broker takes batches and refuses the second message of each.
type broker struct{ calls, batches int }

func (b *broker) Publish(string, ...*message.Message) error { b.calls++; return nil }
func (b *broker) Close() error                              { return nil }
func (b *broker) PublishBatch(_ context.Context, batch []storekit.Outgoing) error {
	b.batches++
	return &storekit.PublishError{Total: len(batch), Failed: []storekit.FailedMessage{{Index: 1, Err: errors.New("refused")}}}
}

func TestGauges(t *testing.T) {
	t.Parallel()

	t.Run("show the records of a store by status, group and topic", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		topics := outmill.Topics{Include: []string{"orders"}}
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Topics: topics}))
		publish(t, store, "orders", 4)
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Topics: topics, Limit: 3, Lease: time.Minute,
		})
		require.NoError(t, err)
		require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "bad"}}))
		require.NoError(t, store.Snooze(t.Context(), []outmill.Settlement{{Lease: found[1].Lease(), Delay: time.Hour}}))
		registry, _ := start(t, monitor.MetricsConfig{}, store)
		labels := []string{"store", "main", "group", outmill.DefaultGroup, "topic", "orders"}
		require.EqualValues(t, 2, gauge(t, registry, "outmill_records_pending", labels...))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_delayed", labels...))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_leased", labels...))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_dead", labels...))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_store_up", "store", "main"))
		require.Positive(t, gauge(t, registry, "outmill_records_oldest_due_age_seconds", labels...))
	})

	t.Run("sum the topics beyond the limit as other, and keep the labels of those that were there first", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		publish(t, store, "m", 1)
		registry, _ := start(t, monitor.MetricsConfig{MaxSeries: 1, CacheFor: time.Nanosecond}, store)
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_pending", "topic", "m"))
		publish(t, store, "a", 2)
		publish(t, store, "z", 3)
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_pending", "topic", "m"))
		require.EqualValues(t, 5, gauge(t, registry, "outmill_records_pending", "topic", "other", "group", "other"))
		require.Len(t, samples(t, registry, "outmill_records_pending"), 2)
	})

	t.Run("cost one query for many scrapes, and none after Close", func(t *testing.T) {
		t.Parallel()
		store := counted{open(t, "main"), new(atomic.Int64)}
		registry, _ := start(t, monitor.MetricsConfig{CacheFor: time.Hour}, store)
		for range 10 {
			require.Len(t, samples(t, registry, "outmill_store_up"), 1)
		}
		require.EqualValues(t, 1, store.calls.Load())
		registry, metrics := start(t, monitor.MetricsConfig{}, store)
		require.NoError(t, metrics.Close())
		require.Empty(t, samples(t, registry, "outmill_store_up"))
		require.EqualValues(t, 1, store.calls.Load())
	})

	t.Run("report a store that does not answer as down, and the others as before", func(t *testing.T) {
		t.Parallel()
		well := open(t, "well")
		publish(t, well, "orders", 1)
		registry, _ := start(t, monitor.MetricsConfig{Timeout: answersWithin, CacheFor: time.Hour}, mute{open(t, "ill")}, well)
		require.EqualValues(t, 0, gauge(t, registry, "outmill_store_up", "store", "ill"))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_store_up", "store", "well"))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_pending", "store", "well"))
		require.Empty(t, samples(t, registry, "outmill_records_pending", "store", "ill"))
	})

	t.Run("report a tenant that does not answer as down, and the others as before", func(t *testing.T) {
		t.Parallel()
		well := open(t, "")
		publish(t, well, "orders", 1)
		set, err := tenants.New(t.Context(), tenants.Config{WithoutWake: true, Discovery: tenants.Static{
			{Key: "ill", Store: mute{open(t, "")}}, {Key: "well", Store: well},
		}}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		registry, _ := start(t, monitor.MetricsConfig{Timeout: answersWithin, CacheFor: time.Hour}, set)
		require.EqualValues(t, 0, gauge(t, registry, "outmill_store_up", "store", "ill"))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_store_up", "store", "well"))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_store_up", "store", set.Name()))
		require.EqualValues(t, 1, gauge(t, registry, "outmill_records_pending", "store", "well"))
		require.Empty(t, samples(t, registry, "outmill_records_pending", "store", "ill"))
	})
}

// answersWithin is a limit that a store which answers keeps on a busy machine, too.
const answersWithin = 5 * time.Second

func TestPublisher(t *testing.T) {
	t.Parallel()

	t.Run("several messages stay one call and are one measurement", func(t *testing.T) {
		t.Parallel()
		registry, metrics := start(t, monitor.MetricsConfig{})
		to := &broker{}
		pub, err := metrics.Publisher("publish", struct{ message.Publisher }{to})
		require.NoError(t, err)
		require.NoError(t, pub.Publish("orders", messages(3)...))
		require.Equal(t, 1, to.calls)
		_, batches := pub.(storekit.BatchPublisher)
		require.False(t, batches, "a publisher without batches must not promise them")
		found := samples(t, registry, "outmill_publish_duration_seconds",
			"messaging_destination_name", "orders", "messaging_operation_name", "publish")
		require.Len(t, found, 1)
		require.EqualValues(t, 1, found[0].GetHistogram().GetSampleCount())
		require.EqualValues(t, 3, samples(t, registry, "outmill_publish_messages_total")[0].GetCounter().GetValue())
	})

	t.Run("a batch stays a batch, and its failed messages are counted apart", func(t *testing.T) {
		t.Parallel()
		registry, metrics := start(t, monitor.MetricsConfig{})
		to := &broker{}
		pub, err := metrics.Publisher("forward", to)
		require.NoError(t, err)
		list := messages(3)
		err = pub.(storekit.BatchPublisher).PublishBatch(t.Context(), []storekit.Outgoing{
			{Topic: "a", Message: list[0]}, {Topic: "b", Message: list[1]}, {Topic: "c", Message: list[2]},
		})
		require.ErrorContains(t, err, "refused")
		require.Equal(t, 1, to.batches)
		total := samples(t, registry, "outmill_publish_messages_total")
		require.Len(t, total, 2)
		failed := samples(t, registry, "outmill_publish_messages_total", "error_type", "_OTHER")
		require.EqualValues(t, 1, failed[0].GetCounter().GetValue())
	})

	t.Run("topics beyond the limit share one label", func(t *testing.T) {
		t.Parallel()
		registry, metrics := start(t, monitor.MetricsConfig{MaxSeries: 2})
		pub, err := metrics.Publisher("publish", &broker{})
		require.NoError(t, err)
		for i := range 5 {
			require.NoError(t, pub.Publish(fmt.Sprint(i), messages(1)...))
		}
		require.Len(t, samples(t, registry, "outmill_publish_messages_total"), 3)
		rest := samples(t, registry, "outmill_publish_messages_total", "messaging_destination_name", "other")
		require.EqualValues(t, 3, rest[0].GetCounter().GetValue())
	})
}

func TestStore(t *testing.T) {
	t.Parallel()

	t.Run("appends, claims and acks of many records are one measurement each", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		registry, metrics := start(t, monitor.MetricsConfig{})
		measured, err := metrics.Store(store)
		require.NoError(t, err)
		topics := outmill.Topics{Include: []string{"orders"}}
		require.NoError(t, measured.RegisterGroup(t.Context(), outmill.Registration{Topics: topics}))
		request := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Topics: topics, Limit: 10, Lease: time.Minute}
		publish(t, measured, "orders", 3)
		found, err := measured.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, found, 3)
		var leases []outmill.Lease
		for _, rec := range found {
			leases = append(leases, rec.Lease())
		}
		require.NoError(t, measured.Ack(t.Context(), "test", leases))
		_, err = measured.Claim(t.Context(), request)
		require.NoError(t, err)
		for _, operation := range []string{"append", "claim", "claim_empty", "ack"} {
			calls := samples(t, registry, "outmill_store_operation_duration_seconds", "store", "main", "operation", operation)
			require.Len(t, calls, 1, operation)
			require.EqualValues(t, 1, calls[0].GetHistogram().GetSampleCount(), operation)
		}
	})

	t.Run("a failed call counts as one, and a call that the program ended does not", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		registry, metrics := start(t, monitor.MetricsConfig{})
		measured, err := metrics.Store(store)
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		request := outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Topics: outmill.Topics{Include: []string{"orders"}}, Limit: 1, Lease: time.Minute,
		}
		_, err = measured.Claim(ended, request)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, samples(t, registry, "outmill_store_operation_duration_seconds"))
		require.NoError(t, store.Close())
		_, err = measured.Claim(t.Context(), request)
		require.ErrorIs(t, err, outmill.ErrClosed)
		require.Len(t, samples(t, registry, "outmill_store_operation_duration_seconds", "error_type", "_OTHER"), 1)
	})

	t.Run("the other roles of the store stay", func(t *testing.T) {
		t.Parallel()
		_, metrics := start(t, monitor.MetricsConfig{})
		measured, err := metrics.Store(open(t, "main"))
		require.NoError(t, err)
		_, found := outmill.As[roles.Inbox](measured)
		require.True(t, found)
	})
}

func TestHandler(t *testing.T) {
	t.Parallel()

	t.Run("a handling that failed is counted apart from one that did not, with its attempt", func(t *testing.T) {
		t.Parallel()
		registry, metrics := start(t, monitor.MetricsConfig{})
		handle := func(attempts int, result error) {
			rec := &outmill.Record{Topic: "orders", Group: "billing", Attempts: attempts, CreatedAt: time.Now().Add(-time.Hour)}
			msg := messages(1)[0]
			msg.SetContext(storekit.NewHandling("main", rec, nil).Context(t.Context()))
			_, err := metrics.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, result })(msg)
			require.Equal(t, result, err)
		}
		handle(0, errors.New("bad"))
		handle(1, nil)
		labels := []string{"store", "main", "messaging_consumer_group_name", "billing", "messaging_destination_name", "orders"}
		require.Len(t, samples(t, registry, "outmill_handle_duration_seconds", labels...), 2)
		failed := samples(t, registry, "outmill_attempts", append(labels, "error_type", "_OTHER")...)
		require.Len(t, failed, 1)
		require.InDelta(t, 1, failed[0].GetHistogram().GetSampleSum(), 0)
		total := 0.0
		for _, sample := range samples(t, registry, "outmill_attempts", labels...) {
			total += sample.GetHistogram().GetSampleSum()
		}
		require.InDelta(t, 3, total, 0)
		for _, sample := range samples(t, registry, "outmill_end_to_end_duration_seconds", labels...) {
			require.GreaterOrEqual(t, sample.GetHistogram().GetSampleSum(), 3600.0)
		}
	})

	t.Run("a message that is not from Outmill is handled and not measured", func(t *testing.T) {
		t.Parallel()
		registry, metrics := start(t, monitor.MetricsConfig{})
		_, err := metrics.Middleware(message.PassthroughHandler)(messages(1)[0])
		require.NoError(t, err)
		require.Empty(t, samples(t, registry, "outmill_handle_duration_seconds"))
	})
}

// away is a broker that accepts nothing until it is repaired.
type away struct{ repaired atomic.Bool }

func (a *away) Publish(string, ...*message.Message) error {
	if a.repaired.Load() {
		return nil
	}
	return outmill.ErrBrokerUnavailable
}
func (a *away) Close() error { return nil }

// stumbling refuses the first message that it gets, once.
type stumbling struct{ fallen atomic.Bool }

func (s *stumbling) Publish(string, ...*message.Message) error {
	if s.fallen.Swap(true) {
		return nil
	}
	return outmill.RetryAfter(errors.New("slow down"), 0)
}
func (s *stumbling) Close() error { return nil }

// stumblingBatches is stumbling for batches.
type stumblingBatches struct{ stumbling }

func (s *stumblingBatches) PublishBatch(_ context.Context, batch []storekit.Outgoing) error {
	err := s.Publish("")
	if err == nil {
		return nil
	}
	failed := storekit.FailedMessage{MessageID: batch[0].Message.UUID, Topic: batch[0].Topic, Err: err}
	return &storekit.PublishError{Total: len(batch), Failed: []storekit.FailedMessage{failed}}
}

func TestForwarder(t *testing.T) {
	t.Parallel()

	t.Run("the breaker is open while the broker is away, and closed after it came back", func(t *testing.T) {
		t.Parallel()
		store, to := open(t, "main"), &away{}
		registry, metrics := start(t, monitor.MetricsConfig{})
		topics := outmill.Topics{Include: []string{"orders"}}
		f, err := forwarder.New(store, to, forwarder.Config{Topics: topics, MaxErrorBackoff: 100 * time.Millisecond}, nil)
		require.NoError(t, err)
		require.NoError(t, metrics.Forwarder("kafka", f))
		breaker := func() float64 { return gauge(t, registry, "outmill_forwarder_breaker_open", "forwarder", "kafka") }
		require.Zero(t, breaker())
		ran := make(chan error, 1)
		go func() { ran <- f.Run(t.Context()) }()
		publish(t, store, "orders", 1)
		require.Eventually(t, func() bool { return breaker() == 1 }, time.Minute, 5*time.Millisecond)
		to.repaired.Store(true)
		require.Eventually(t, func() bool { return breaker() == 0 }, time.Minute, 5*time.Millisecond)
		require.NoError(t, f.Close())
		<-ran
	})

	t.Run("each forwarded record counts with its attempts and its age, one by one and in batches", func(t *testing.T) {
		t.Parallel()
		for name, to := range map[string]message.Publisher{"one by one": &stumbling{}, "in batches": &stumblingBatches{}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := open(t, "main")
				registry, metrics := start(t, monitor.MetricsConfig{})
				measured, err := metrics.Publisher("forward", to)
				require.NoError(t, err)
				f, err := forwarder.New(store, measured, forwarder.Config{Topics: outmill.Topics{Include: []string{"orders"}}}, nil)
				require.NoError(t, err)
				ran := make(chan error, 1)
				go func() { ran <- f.Run(t.Context()) }()
				publish(t, store, "orders", 3)
				labels := []string{"messaging_operation_name", "forward", "messaging_destination_name", "orders",
					"messaging_consumer_group_name", "forwarder", "store", "main"}
				sum := func(metric string, labels ...string) (count uint64, sum float64) {
					for _, sample := range samples(t, registry, metric, labels...) {
						count, sum = count+sample.GetHistogram().GetSampleCount(), sum+sample.GetHistogram().GetSampleSum()
					}
					return count, sum
				}
				require.Eventually(t, func() bool { n, _ := sum("outmill_attempts", labels...); return n == 4 }, time.Minute, 5*time.Millisecond)
				// One measurement of an attempt follows another.
				require.NoError(t, f.Close())
				require.NoError(t, <-ran)
				_, attempts := sum("outmill_attempts", labels...)
				require.InDelta(t, 1+1+1+2, attempts, 0, "the first attempt of one failed, and its second succeeded")
				failures, attempts := sum("outmill_attempts", append(labels, "error_type", "_OTHER")...)
				require.Equal(t, uint64(1), failures)
				require.InDelta(t, 1, attempts, 0)
				count, age := sum("outmill_end_to_end_duration_seconds", labels...)
				require.Equal(t, uint64(4), count)
				require.Positive(t, age)
			})
		}
	})

	t.Run("a message that a handler publishes does not count as forwarded", func(t *testing.T) {
		t.Parallel()
		registry, metrics := start(t, monitor.MetricsConfig{})
		pub, err := metrics.Publisher("publish", &broker{})
		require.NoError(t, err)
		msg := messages(1)[0]
		msg.SetContext(storekit.NewHandling("main", &outmill.Record{Topic: "orders"}, nil).Context(t.Context()))
		require.NoError(t, pub.Publish("orders", msg))
		require.Empty(t, samples(t, registry, "outmill_attempts"))
	})

	t.Run("a topic that the broker refuses counts as held", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		registry, metrics := start(t, monitor.MetricsConfig{})
		topics := outmill.Topics{Include: []string{"orders"}}
		f, err := forwarder.New(store, refusing{}, forwarder.Config{Topics: topics}, nil)
		require.NoError(t, err)
		require.NoError(t, metrics.Forwarder("", f))
		ran := make(chan error, 1)
		go func() { ran <- f.Run(t.Context()) }()
		publish(t, store, "orders", 1)
		require.Eventually(t, func() bool {
			return gauge(t, registry, "outmill_forwarder_topics_held", "forwarder", "forwarder") == 1
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, []string{"orders"}, f.HeldTopics())
		require.NoError(t, f.Close())
		<-ran
		require.Empty(t, f.HeldTopics())
	})
}

// refusing is a broker that has no such topic.
type refusing struct{}

func (refusing) Publish(string, ...*message.Message) error { return outmill.ErrTopicUnavailable }
func (refusing) Close() error                              { return nil }

func TestSettings(t *testing.T) {
	t.Parallel()

	t.Run("wrong ones are refused with the name of the field", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		for want, try := range map[string]func() error{
			"registry": func() error { _, err := prometheus.New(nil, monitor.MetricsConfig{}); return err },
			"provider": func() error { _, err := monitor.NewMetrics(nil, monitor.MetricsConfig{}); return err },
			"store":    func() error { _, err := prometheus.New(client.NewRegistry(), monitor.MetricsConfig{}, nil); return err },
			`"main"`: func() error {
				_, err := prometheus.New(client.NewRegistry(), monitor.MetricsConfig{}, store, store)
				return err
			},
			"MaxSeries": func() error {
				_, err := prometheus.New(client.NewRegistry(), monitor.MetricsConfig{MaxSeries: -1})
				return err
			},
			"Timeout": func() error {
				_, err := prometheus.New(client.NewRegistry(), monitor.MetricsConfig{Timeout: -1})
				return err
			},
		} {
			err := try()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, want)
		}
	})
}

// useAll makes each metric have a value: a message is published, handled and acked.
func useAll(t *testing.T, metrics *monitor.Metrics, store *sqlite.Store) {
	t.Helper()
	measured, err := metrics.Store(store)
	require.NoError(t, err)
	sub, err := subscriber.New(measured, subscriber.Config{}, watermill.NopLogger{})
	require.NoError(t, err)
	incoming, err := sub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	inner, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	pub, err := metrics.Publisher("publish", inner)
	require.NoError(t, err)
	require.NoError(t, pub.Publish("orders", messages(1)...))
	outgoing, err := forwarder.New(store, &broker{}, forwarder.Config{Topics: outmill.Topics{Include: []string{"none"}}}, nil)
	require.NoError(t, err)
	require.NoError(t, metrics.Forwarder("", outgoing))
	require.NoError(t, metrics.Subscriber("", sub))
	msg := <-incoming
	_, err = metrics.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })(msg)
	require.NoError(t, err)
	// Collections see the record while it is leased.
	t.Cleanup(func() { msg.Ack(); require.NoError(t, sub.Close()) })
}

func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var wantOTel, wantPrometheus []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		wantOTel, wantPrometheus = append(wantOTel, row[1]), append(wantPrometheus, row[2])
	}

	t.Run("the page of metrics lists exactly those of OpenTelemetry", func(t *testing.T) {
		t.Parallel()
		store, reader := open(t, "main"), metric.NewManualReader()
		metrics, err := monitor.NewMetrics(metric.NewMeterProvider(metric.WithReader(reader)), monitor.MetricsConfig{}, store)
		require.NoError(t, err)
		useAll(t, metrics, store)
		var found metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &found))
		var names []string
		for _, m := range found.ScopeMetrics[0].Metrics {
			names = append(names, m.Name)
		}
		require.ElementsMatch(t, names, wantOTel)
	})

	t.Run("the page of metrics lists exactly those of Prometheus", func(t *testing.T) {
		t.Parallel()
		store := open(t, "main")
		registry, metrics := start(t, monitor.MetricsConfig{}, store)
		useAll(t, metrics, store)
		families, err := registry.Gather()
		require.NoError(t, err)
		var names []string
		for _, family := range families {
			names = append(names, family.GetName())
		}
		require.ElementsMatch(t, names, wantPrometheus)
	})
}
