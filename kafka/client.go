package kafka

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
)

// longestAttempt limits the time of one request, even if DeliveryTimeout is much longer.
const longestAttempt = 30 * time.Second

// A known topic counts as deleted after unknownTopicLooks metadata refreshes without it,
// which takes 1 to 2 s.
const (
	lookAgainAfter    = 100 * time.Millisecond
	unknownTopicLooks = 10
)

// client is the Kafka client of a lane.
type client struct {
	*kgo.Client
	// loading is locked while the lane passes records to the client. Answers of brokers wait
	// until it is unlocked.
	loading sync.RWMutex
}

// newClient makes a client for a lane. It does not connect.
func newClient(config Config, logger watermill.LoggerAdapter) (*client, error) {
	c := &client{}
	// An attempt ends early enough that there is time to try another connection.
	attempt := min(max(config.DeliveryTimeout/3, minTimeout), longestAttempt)
	opts := []kgo.Opt{
		kgo.SeedBrokers(config.Brokers...),
		kgo.ClientID(config.ClientID),
		kgo.WithLogger(clientLogger{logger}),
		kgo.WithHooks(hooks{&c.loading}),
		kgo.DisableClientMetrics(),
		kgo.DialTimeout(attempt),
		kgo.RequestTimeoutOverhead(attempt),
		kgo.RequestRetries(3),
		kgo.RetryTimeout(config.DeliveryTimeout),
		kgo.RetryBackoffFn(backoff),
		// A round waits until the metadata shows that a leader has moved or that a topic was
		// deleted. With the client's default of 5 s between two refreshes, this wait could take
		// the whole DeliveryTimeout.
		kgo.MetadataMinAge(lookAgainAfter),
		kgo.UnknownTopicRetries(unknownTopicLooks),

		kgo.ManualFlushing(),
		kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProduceRequestTimeout(attempt),
		// A round must end in time. The comment in produce says why this does not break the order.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.RecordPartitioner(partitioner()),
		kgo.ProducerBatchCompression(config.Compression.codec()),
		kgo.ProducerBatchMaxBytes(int32(config.MaxMessageBytes)),
		// Rounds have a limit already. The factor 2 is needed because the client counts a record
		// for a moment after its outcome is known.
		kgo.MaxBufferedRecords(2 * config.MaxBufferedRecords),
	}
	if !config.NoTopicCreation {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	if config.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(config.TLS.Clone()))
	}
	if mechanism := config.SASL.mechanism(); mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	var err error
	if c.Client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("%w: kafka: make a client for kafka.Config.Brokers (%s): %w", outmill.ErrInvalidConfig,
			strings.Join(config.Brokers, ", "), err)
	}
	return c, nil
}

// backoff grows from 50 ms to 1 s, with jitter.
func backoff(failures int) time.Duration {
	return outmill.RetryPolicy{InitialInterval: 50 * time.Millisecond, MaxInterval: time.Second, FullJitter: true}.Delay(failures)
}
