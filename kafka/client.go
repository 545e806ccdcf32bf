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

// longestAttempt bounds how long one request may hang, however long messages
// may take.
const longestAttempt = 30 * time.Second

// A topic that was there is taken for deleted after so many looks at the
// metadata, which is 1 to 2 s.
const (
	lookAgainAfter    = 100 * time.Millisecond
	unknownTopicLooks = 10
)

// client is what one lane produces with.
type client struct {
	*kgo.Client
	// loading is held while records are handed to the client. Until it is free, the
	// answers of brokers wait.
	loading sync.RWMutex
}

// newClient makes a client for a lane. It does not connect.
func newClient(brokers []string, config Config, logger watermill.LoggerAdapter) (*client, error) {
	c := &client{}
	// A connection that hangs is given up early enough to try another one.
	attempt := min(max(config.DeliveryTimeout/3, minTimeout), longestAttempt)
	opts := []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID(config.ClientID),
		kgo.WithLogger(clientLogger{logger}),
		kgo.WithHooks(hooks{&c.loading}),
		kgo.DisableClientMetrics(),
		kgo.DialTimeout(attempt),
		kgo.RequestTimeoutOverhead(attempt),
		kgo.RequestRetries(3),
		kgo.RetryTimeout(config.DeliveryTimeout),
		kgo.RetryBackoffFn(backoff),
		// A leader that has moved and a topic that was deleted show in the
		// metadata, and a round waits for what they show: with the client's default
		// of 5 s between two looks, for as long as the time allows.
		kgo.MetadataMinAge(lookAgainAfter),
		kgo.UnknownTopicRetries(unknownTopicLooks),

		kgo.ManualFlushing(),
		kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProduceRequestTimeout(attempt),
		// A round must end. See fly for why that does no harm to the order.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.RecordPartitioner(partitioner()),
		kgo.ProducerBatchCompression(config.Compression.codec()),
		kgo.ProducerBatchMaxBytes(int32(config.MaxMessageBytes)),
		// Rounds are bounded already; the client counts a record for a moment after
		// its outcome is known.
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
		return nil, fmt.Errorf("%w: kafka: make a client for PublisherConfig.Brokers (%s) with kafka.Config: %w", outmill.ErrInvalidConfig,
			strings.Join(brokers, ", "), err)
	}
	return c, nil
}

// backoff grows from 50 ms to 1 s, with a jitter.
func backoff(failures int) time.Duration {
	return outmill.RetryPolicy{InitialInterval: 50 * time.Millisecond, MaxInterval: time.Second, FullJitter: true}.Delay(failures)
}
